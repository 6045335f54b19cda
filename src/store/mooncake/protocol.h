#pragma once

#include <cstdint>

namespace embercache::mooncake {

// What store and bridge say to each other (docs/design/mooncake.md); wheel_bridge.py has the same
// numbers.
enum class Op : uint32_t { kPut = 1, kGet, kExist, kSize, kRemove, kSetUp, kMap, kUnmap, kChannel };

enum class AnswerKind : uint32_t {
  kNumbers,
  kError,
  kText,
  kAbsent,  // an error: there is no client to set up here
};

struct RequestHead {
  uint32_t op = 0;
  uint32_t keys = 0;
  uint32_t bytes = 0;  // that follow
};

struct AnswerHead {
  uint32_t kind = 0;
  uint32_t size = 0;  // numbers, or bytes of text, that follow
};

inline constexpr int kControlFd = 3;

}  // namespace embercache::mooncake
