#include "src/store/mooncake/bounce_area.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace embercache::mooncake {
namespace {

constexpr uint64_t kAlignment = 4096;

}  // namespace

BouncePiece& BouncePiece::operator=(BouncePiece&& other) noexcept {
  if (this != &other) {
    Reset();
    area_ = std::exchange(other.area_, nullptr);
    memory_ = std::exchange(other.memory_, {});
  }
  return *this;
}

void BouncePiece::Reset() {
  if (area_ != nullptr) std::exchange(area_, nullptr)->Return(memory_);
}

Result<std::unique_ptr<BounceArea>> BounceArea::Create(uint64_t bytes, uint64_t largest_piece) {
  Descriptor file(memfd_create("embercache-bounce", MFD_CLOEXEC));
  if (file.get() < 0) return Status::FromErrno(errno, "mooncake: memfd_create");
  if (ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    return Status::FromErrno(errno, "mooncake: ftruncate of the bounce area");
  }
  void* const base =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (base == MAP_FAILED) return Status::FromErrno(errno, "mooncake: mmap of the bounce area");
  return std::unique_ptr<BounceArea>(
      new BounceArea(std::move(file), {static_cast<std::byte*>(base), bytes}, largest_piece));
}

BounceArea::~BounceArea() {
  munmap(memory_.data(), memory_.size());
}

uint64_t BounceArea::FindGap(uint64_t bytes) const {
  uint64_t start = 0;
  for (const auto& [offset, size] : taken_) {
    if (offset - start >= bytes) return start;
    start = offset + size;
  }
  return memory_.size() - start >= bytes ? start : memory_.size();
}

Result<BouncePiece> BounceArea::Take(uint64_t bytes, TimePoint deadline) {
  const uint64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (bytes > largest_piece_) {
    return Status::ResourceExhausted(
        fmt::format("{} bytes in memory that is not registered; such objects have at most {} bytes",
                    bytes, largest_piece_));
  }
  MutexLock lock(mutex_);
  uint64_t offset = 0;
  while ((offset = FindGap(rounded)) == memory_.size()) {
    if (!freed_.WaitUntil(mutex_, deadline)) {
      return Status::DeadlineExceeded("no room in the bounce area");
    }
  }
  taken_[offset] = rounded;
  BouncePiece piece;
  piece.area_ = this;
  piece.memory_ = memory_.subspan(offset, bytes);
  return piece;
}

void BounceArea::Return(MutableBuffer memory) {
  MutexLock lock(mutex_);
  taken_.erase(static_cast<uint64_t>(memory.data() - memory_.data()));
  freed_.NotifyAll();
}

}  // namespace embercache::mooncake
