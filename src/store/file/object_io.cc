#include "src/store/file/object_io.h"

#include <fmt/format.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "src/store/store_call.h"

namespace embercache {
namespace {

// Bytes of one system call: what a slow disk moves between two looks at the deadline.
constexpr size_t kChunkBytes = 4UL << 20;
constexpr size_t kChunkBuffers = 256;

// Where a transfer stands in a list of buffers.
template <typename Buffer>
class Cursor {
 public:
  explicit Cursor(std::span<const Buffer> buffers) : buffers_(buffers) { SkipEmpty(); }

  bool done() const { return buffers_.empty(); }

  // The next chunk, as system calls take it.
  std::span<const iovec> NextChunk() {
    size_t count = 0;
    size_t bytes = 0;
    size_t skip = offset_;
    for (const Buffer& buffer : buffers_) {
      if (count == chunk_.size() || bytes == kChunkBytes) break;
      const size_t length = std::min(buffer.size() - skip, kChunkBytes - bytes);
      // iovec has no const form; writes leave the memory alone.
      chunk_[count++] = {const_cast<std::byte*>(buffer.data()) + skip, length};
      bytes += length;
      skip = 0;
    }
    return std::span(chunk_).first(count);
  }

  void Advance(size_t bytes) {
    while (bytes > 0) {
      const size_t step = std::min(bytes, buffers_.front().size() - offset_);
      offset_ += step;
      bytes -= step;
      SkipEmpty();
    }
  }

 private:
  void SkipEmpty() {
    while (!buffers_.empty() && offset_ == buffers_.front().size()) {
      buffers_ = buffers_.subspan(1);
      offset_ = 0;
    }
  }

  std::span<const Buffer> buffers_;
  size_t offset_ = 0;  // into the first of them
  std::array<iovec, kChunkBuffers> chunk_;
};

// `transfer(iovecs, offset)` is preadv or pwritev.
template <typename Buffer, typename Transfer>
Status TransferAll(std::span<const Buffer> buffers, const CallContext& context, const Clock& clock,
                   Transfer transfer) {
  Cursor<Buffer> cursor(buffers);
  off_t offset = 0;
  while (!cursor.done()) {
    EMBERCACHE_RETURN_IF_ERROR(CheckCall(context, clock));
    const ssize_t moved = transfer(cursor.NextChunk(), offset);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return Status::FromErrno(errno, "transfer");
    if (moved == 0) return Status::Corruption(fmt::format("the file ends after {} bytes", offset));
    cursor.Advance(static_cast<size_t>(moved));
    offset += moved;
  }
  return Status::Ok();
}

}  // namespace

Status ReadObject(int fd, std::span<const MutableBuffer> buffers, const CallContext& context,
                  const Clock& clock) {
  return TransferAll(buffers, context, clock, [fd](std::span<const iovec> chunk, off_t offset) {
    return preadv(fd, chunk.data(), static_cast<int>(chunk.size()), offset);
  });
}

Status WriteObject(int fd, std::span<const ConstBuffer> buffers, const CallContext& context,
                   const Clock& clock) {
  return TransferAll(buffers, context, clock, [fd](std::span<const iovec> chunk, off_t offset) {
    return pwritev(fd, chunk.data(), static_cast<int>(chunk.size()), offset);
  });
}

}  // namespace embercache
