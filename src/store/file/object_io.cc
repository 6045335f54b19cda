#include "src/store/file/object_io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <vector>

#include "src/store/file/io_error.h"
#include "src/store/store_call.h"

namespace embercache {
namespace {

// Bytes of one system call: what a slow disk moves between two looks at the deadline.
constexpr size_t kChunkBytes = 8UL << 20;
constexpr size_t kChunkBuffers = 256;
// Direct I/O is a matter of logical blocks; none is larger in practice.
constexpr size_t kAlignment = 4096;

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

bool SetDirect(int fd, bool on) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

template <typename Buffer>
bool FitsDirect(std::span<const Buffer> buffers) {
  return TotalBytes(buffers) >= kDirectBytes &&
         std::all_of(buffers.begin(), buffers.end(), [](const Buffer& buffer) {
           return reinterpret_cast<uintptr_t>(buffer.data()) % kAlignment == 0 &&
                  buffer.size() % kAlignment == 0;
         });
}

// Whether all of the file lies in the page cache. False when that can't be told.
bool IsCached(int fd, size_t bytes) {
  void* const map = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return false;
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> resident((bytes + page_bytes - 1) / page_bytes);
  const bool known = mincore(map, bytes, resident.data()) == 0;
  munmap(map, bytes);
  return known && std::all_of(resident.begin(), resident.end(), [](auto page) { return page & 1; });
}

// Finds the space for the file's bytes, where the file system can.
Status Allocate(int fd, uint64_t bytes) {
  int outcome;
  do {
    outcome = fallocate(fd, 0, 0, static_cast<off_t>(bytes));
  } while (outcome != 0 && errno == EINTR);
  if (outcome == 0 || errno == EOPNOTSUPP) return Status::Ok();
  return IoError(errno, "allocate");
}

// `transfer(iovecs, offset)` is preadv or pwritev, `verb` what it does.
template <typename Buffer, typename Transfer>
Status TransferAll(std::string_view verb, int fd, std::span<const Buffer> buffers, bool direct,
                   const CallContext& context, const Clock& clock, Transfer transfer) {
  direct = direct && SetDirect(fd, true);
  Cursor<Buffer> cursor(buffers);
  off_t offset = 0;
  while (!cursor.done()) {
    EMBERCACHE_RETURN_IF_ERROR(CheckCall(context, clock));
    const ssize_t moved = transfer(cursor.NextChunk(), offset);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0 && errno == EINVAL && direct) {
      // This file system wants another alignment, or has no direct I/O after all.
      if (!SetDirect(fd, false)) return IoError(errno, "leave direct I/O");
      direct = false;
      continue;
    }
    if (moved < 0) return IoError(errno, verb);
    if (moved == 0) return Status::Corruption(fmt::format("the file ends after {} bytes", offset));
    cursor.Advance(static_cast<size_t>(moved));
    offset += moved;
  }
  return Status::Ok();
}

}  // namespace

Status ReadObject(int fd, std::span<const MutableBuffer> buffers, const CallContext& context,
                  const Clock& clock) {
  const bool direct = FitsDirect(buffers) && !IsCached(fd, TotalBytes(buffers));
  return TransferAll("read", fd, buffers, direct, context, clock,
                     [fd](std::span<const iovec> chunk, off_t offset) {
                       return preadv(fd, chunk.data(), static_cast<int>(chunk.size()), offset);
                     });
}

Status WriteObject(int fd, std::span<const ConstBuffer> buffers, const CallContext& context,
                   const Clock& clock) {
  const bool direct = FitsDirect(buffers);
  // Around the cache nothing gathers the chunks; the blocks had better be found together.
  if (direct) EMBERCACHE_RETURN_IF_ERROR(Allocate(fd, TotalBytes(buffers)));
  return TransferAll("write", fd, buffers, direct, context, clock,
                     [fd](std::span<const iovec> chunk, off_t offset) {
                       return pwritev(fd, chunk.data(), static_cast<int>(chunk.size()), offset);
                     });
}

}  // namespace embercache
