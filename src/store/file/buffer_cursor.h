#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

namespace embercache {

// Where a transfer stands in a list of buffers.
template <typename Buffer>
class BufferCursor {
 public:
  static constexpr size_t kChunkBuffers = 256;

  explicit BufferCursor(std::span<const Buffer> buffers) : buffers_(buffers) { SkipEmpty(); }

  bool done() const { return buffers_.empty(); }
  // Bytes behind it.
  off_t offset() const { return offset_; }

  // The next chunk, of `most_bytes` at most, as system calls take it; valid until the next call.
  std::span<const iovec> NextChunk(size_t most_bytes) {
    size_t count = 0;
    size_t bytes = 0;
    size_t skip = within_;
    for (const Buffer& buffer : buffers_) {
      if (count == chunk_.size() || bytes == most_bytes) break;
      const size_t length = std::min(buffer.size() - skip, most_bytes - bytes);
      // iovec has no const form; writes leave the memory alone.
      chunk_[count++] = {const_cast<std::byte*>(buffer.data()) + skip, length};
      bytes += length;
      skip = 0;
    }
    return std::span(chunk_).first(count);
  }

  void Advance(size_t bytes) {
    offset_ += static_cast<off_t>(bytes);
    while (bytes > 0) {
      const size_t step = std::min(bytes, buffers_.front().size() - within_);
      within_ += step;
      bytes -= step;
      SkipEmpty();
    }
  }

 private:
  void SkipEmpty() {
    while (!buffers_.empty() && within_ == buffers_.front().size()) {
      buffers_ = buffers_.subspan(1);
      within_ = 0;
    }
  }

  std::span<const Buffer> buffers_;
  size_t within_ = 0;  // the first of them
  off_t offset_ = 0;
  std::array<iovec, kChunkBuffers> chunk_;
};

}  // namespace embercache
