#pragma once

#include <cstdint>
#include <span>

#include "embercache/clock.h"
#include "embercache/status.h"
#include "embercache/store.h"

namespace embercache {

// Fills the buffers, one after the other, from the start of the file. Between chunks it looks at
// the context. Corruption when the file ends first.
Status ReadObject(int fd, std::span<const MutableBuffer> buffers, const CallContext& context,
                  const Clock& clock);

// Writes the buffers, one after the other, from the start of the file.
Status WriteObject(int fd, std::span<const ConstBuffer> buffers, const CallContext& context,
                   const Clock& clock);

}  // namespace embercache
