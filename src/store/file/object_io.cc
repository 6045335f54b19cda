#include "src/store/file/object_io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string_view>
#include <vector>

#include "src/store/file/buffer_cursor.h"
#include "src/store/file/io_error.h"
#include "src/store/store_call.h"

namespace embercache {
namespace {

// Of a chunk that lies in the page cache: small enough to be looked at while it is warm.
constexpr size_t kCachedChunkBytes = 512UL << 10;
// Direct I/O is a matter of logical blocks; none is larger in practice.
constexpr size_t kAlignment = 4096;

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

// Whether the file's first and last page lie in the page cache: a guess at the rest, which would
// cost a look at each page.
bool LooksCached(int fd, size_t bytes) {
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const map = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return false;
  const auto is_cached = [](std::byte* page) {
    unsigned char resident = 0;
    return mincore(page, 1, &resident) == 0 && (resident & 1) != 0;
  };
  auto* const first = static_cast<std::byte*>(map);
  const bool cached = is_cached(first) && is_cached(first + (bytes - 1) / page_bytes * page_bytes);
  munmap(map, bytes);
  return cached;
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

// The way to go on after a call on `way` failed with `error`; none when that was not the reason.
std::optional<IoWay> NextWay(int fd, IoWay way, int error) {
  if (way == IoWay::kCached && error == EAGAIN && SetDirect(fd, true)) return IoWay::kDirect;
  // EOPNOTSUPP: this file system can't tell.
  if (way == IoWay::kCached && (error == EAGAIN || error == EOPNOTSUPP)) return IoWay::kBuffered;
  // This file system wants another alignment, or has no direct I/O after all.
  if (way == IoWay::kDirect && error == EINVAL && SetDirect(fd, false)) return IoWay::kBuffered;
  return std::nullopt;
}

// `transfer(iovecs, offset, flags)` is preadv2 or pwritev, `verb` what it does; `moved_to(offset)`
// hears how far it came.
template <typename Buffer, typename Transfer, typename MovedTo>
Status TransferAll(std::string_view verb, int fd, std::span<const Buffer> buffers, IoWay way,
                   const CallContext& context, const Clock& clock, Transfer transfer,
                   MovedTo moved_to) {
  BufferCursor<Buffer> cursor(buffers);
  while (!cursor.done()) {
    EMBERCACHE_RETURN_IF_ERROR(CheckCall(context, clock));
    const int flags = way == IoWay::kCached ? RWF_NOWAIT : 0;
    const size_t most_bytes = way == IoWay::kCached ? kCachedChunkBytes : kChunkBytes;
    const ssize_t moved = transfer(cursor.NextChunk(most_bytes), cursor.offset(), flags);
    if (moved < 0) {
      const int error = errno;
      if (error == EINTR) continue;
      const std::optional<IoWay> next = NextWay(fd, way, error);
      if (!next) return IoError(error, verb);
      way = *next;
      continue;
    }
    if (moved == 0) {
      return Status::Corruption(fmt::format("the file ends after {} bytes", cursor.offset()));
    }
    cursor.Advance(static_cast<size_t>(moved));
    moved_to(static_cast<uint64_t>(cursor.offset()));
  }
  return Status::Ok();
}

}  // namespace

IoWay PrepareRead(int fd, std::span<const MutableBuffer> buffers) {
  if (!FitsDirect(buffers)) return IoWay::kBuffered;
  if (LooksCached(fd, TotalBytes(buffers))) return IoWay::kCached;
  return SetDirect(fd, true) ? IoWay::kDirect : IoWay::kBuffered;
}

Status ReadObject(int fd, IoWay way, const GetItem& item, size_t index, const CallContext& context,
                  const Clock& clock) {
  TellReceived(context, index, 0);
  return TransferAll(
      "read", fd, item.buffers, way, context, clock,
      [fd](std::span<const iovec> chunk, off_t offset, int flags) {
        return preadv2(fd, chunk.data(), static_cast<int>(chunk.size()), offset, flags);
      },
      [&](uint64_t bytes) { TellReceived(context, index, bytes); });
}

Status WriteObject(int fd, std::span<const ConstBuffer> buffers, const CallContext& context,
                   const Clock& clock) {
  const bool direct = FitsDirect(buffers);
  // Around the cache nothing gathers the chunks; the blocks had better be found together.
  if (direct) EMBERCACHE_RETURN_IF_ERROR(Allocate(fd, TotalBytes(buffers)));
  const IoWay way = direct && SetDirect(fd, true) ? IoWay::kDirect : IoWay::kBuffered;
  return TransferAll(
      "write", fd, buffers, way, context, clock,
      [fd](std::span<const iovec> chunk, off_t offset, int /*flags*/) {
        return pwritev(fd, chunk.data(), static_cast<int>(chunk.size()), offset);
      },
      [](uint64_t) {});
}

}  // namespace embercache
