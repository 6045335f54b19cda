#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <span>

#include "embercache/buffer.h"

namespace embercache {

// Memory behind a memfd, as the pools of the host cache have it.
class SharedMemory {
 public:
  // At `address` where one is given, over whatever is there.
  explicit SharedMemory(size_t bytes, void* address = nullptr)
      : fd_(memfd_create("test", MFD_CLOEXEC)) {
    const int fixed = address == nullptr ? 0 : MAP_FIXED;
    if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(bytes)) != 0) std::abort();
    void* base = mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | fixed, fd_, 0);
    if (base == MAP_FAILED) std::abort();
    memory_ = {static_cast<std::byte*>(base), bytes};
  }
  ~SharedMemory() {
    munmap(memory_.data(), memory_.size());
    close(fd_);
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  MutableBuffer memory() const { return memory_; }
  BufferRegion region() const { return {memory_, fd_, 0}; }

 private:
  int fd_;
  MutableBuffer memory_;
};

}  // namespace embercache
