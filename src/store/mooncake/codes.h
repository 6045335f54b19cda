#pragma once

#include <cstdint>
#include <string>

namespace embercache::mooncake {

// What a client answers instead of 0 or a number of bytes, as far as it matters here.
inline constexpr int64_t kNoRoom = -200;
inline constexpr int64_t kInvalidParameters = -600;  // a buffer not registered, a size that differs
inline constexpr int64_t kNotReady = -703;           // being written
inline constexpr int64_t kNotFound = -704;
inline constexpr int64_t kLeased = -706;
inline constexpr int64_t kLeaseExpired = -707;  // during the transfer: the bytes may be another's
inline constexpr int64_t kBusy = -708;
inline constexpr int64_t kTransferFailed = -800;

inline bool IsAbsent(int64_t code) {
  return code == kNotFound || code == kNotReady;
}

// "-800 (the transfer failed)".
std::string DescribeCode(int64_t code);

}  // namespace embercache::mooncake
