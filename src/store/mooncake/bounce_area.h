#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "embercache/buffer.h"
#include "embercache/clock.h"
#include "embercache/status.h"
#include "src/base/mutex.h"
#include "src/store/mooncake/process.h"

namespace embercache::mooncake {

class BounceArea;

// A contiguous piece of a bounce area, given back on destruction. Move-only.
class BouncePiece {
 public:
  BouncePiece() = default;
  BouncePiece(BouncePiece&& other) noexcept { *this = std::move(other); }
  BouncePiece& operator=(BouncePiece&& other) noexcept;
  ~BouncePiece() { Reset(); }

  explicit operator bool() const { return area_ != nullptr; }
  MutableBuffer memory() const { return memory_; }

 private:
  friend class BounceArea;
  void Reset();

  BounceArea* area_ = nullptr;
  MutableBuffer memory_;
};

// Memory that a bridge knows, for objects whose own memory it does not. Thread-safe; outlives its
// pieces.
class BounceArea {
 public:
  // `largest_piece`: what Take gives at most, so that nobody waits for what will not come.
  static Result<std::unique_ptr<BounceArea>> Create(uint64_t bytes, uint64_t largest_piece);
  ~BounceArea();

  // Waits until `deadline` for room. ResourceExhausted for more than the largest piece.
  Result<BouncePiece> Take(uint64_t bytes, TimePoint deadline);
  BufferRegion region() const { return {memory_, file_.get(), 0}; }

 private:
  friend class BouncePiece;
  BounceArea(Descriptor file, MutableBuffer memory, uint64_t largest_piece)
      : file_(std::move(file)), memory_(memory), largest_piece_(largest_piece) {}
  // The first gap that is large enough, or the memory's end.
  uint64_t FindGap(uint64_t bytes) const REQUIRES(mutex_);
  void Return(MutableBuffer memory);

  const Descriptor file_;
  const MutableBuffer memory_;
  const uint64_t largest_piece_;
  Mutex mutex_;
  CondVar freed_;
  std::map<uint64_t, uint64_t> taken_ GUARDED_BY(mutex_);  // offset: size
};

}  // namespace embercache::mooncake
