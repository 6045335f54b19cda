#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace embercache {

// Memory that a call reads from or writes to. Borrowed for the length of the call.
using ConstBuffer = std::span<const std::byte>;
using MutableBuffer = std::span<std::byte>;

// A region of memory that later calls' buffers lie in.
struct BufferRegion {
  MutableBuffer memory;
  // The memfd behind the region, for backends that share it with another process; -1 without one.
  int fd = -1;
  uint64_t fd_offset = 0;
};

}  // namespace embercache
