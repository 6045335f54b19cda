#pragma once

#include <cstdint>
#include <span>

#include "embercache/clock.h"
#include "embercache/status.h"
#include "embercache/store.h"

namespace embercache {

// Both go around the page cache where that is faster and possible: from kDirectBytes on, with
// buffers whose addresses and sizes are multiples of 4096, and, for reads, a file that is not in
// the cache already. Between chunks they look at the context. DeadlineExceeded, Cancelled, or what
// the system call said.
inline constexpr size_t kDirectBytes = 512UL << 10;

// Fills the buffers, one after the other, from the start of the file. Corruption when it ends
// first.
Status ReadObject(int fd, std::span<const MutableBuffer> buffers, const CallContext& context,
                  const Clock& clock);

// Writes the buffers, one after the other, from the start of the file.
Status WriteObject(int fd, std::span<const ConstBuffer> buffers, const CallContext& context,
                   const Clock& clock);

}  // namespace embercache
