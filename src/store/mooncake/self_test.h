#pragma once

#include <cstdint>

#include "embercache/buffer.h"
#include "embercache/status.h"
#include "src/store/mooncake/bridge.h"

namespace embercache::mooncake {

inline constexpr uint64_t kSelfTestBytes = 4096;

// Puts, gets, compares and removes an object of kSelfTestBytes, in `memory`, which is at `address`
// in the bridge and may be in use until the bridge's end when this fails. Names the step that
// failed and what to look at. ResourceExhausted: the master answers, but no segment has room; what
// is stored can be read.
Status RunSelfTest(Bridge& bridge, MutableBuffer memory, uint64_t address);

}  // namespace embercache::mooncake
