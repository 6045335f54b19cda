#include "src/store/store_call.h"

#include <fmt/format.h>

namespace embercache {
namespace {

template <typename Buffer>
uint64_t SumOfSizes(std::span<const Buffer> buffers) {
  uint64_t bytes = 0;
  for (const Buffer& buffer : buffers) bytes += buffer.size();
  return bytes;
}

}  // namespace

Status CheckKey(std::string_view key) {
  if (!key.empty() && key.size() <= kMaxKeyBytes) return Status::Ok();
  return Status::Invalid(
      fmt::format("a key of {} bytes; keys have 1 to {}", key.size(), kMaxKeyBytes));
}

Status CheckCall(const CallContext& context, const Clock& clock) {
  if (context.cancelled != nullptr && context.cancelled->load(std::memory_order_relaxed)) {
    return Status::Cancelled("the call was cancelled");
  }
  if (context.deadline != TimePoint::max() && clock.Now() >= context.deadline) {
    return Status::DeadlineExceeded("the call's deadline passed");
  }
  return Status::Ok();
}

Status CheckListLimit(size_t limit) {
  return limit > 0 ? Status::Ok() : Status::Invalid("a list page of 0 objects; ask for 1 or more");
}

uint64_t TotalBytes(std::span<const MutableBuffer> buffers) {
  return SumOfSizes(buffers);
}

uint64_t TotalBytes(std::span<const ConstBuffer> buffers) {
  return SumOfSizes(buffers);
}

CallGate::Pass CallGate::Enter() {
  MutexLock lock(mutex_);
  if (closed_) return Pass(nullptr);
  ++inside_;
  return Pass(this);
}

Status CallGate::Close(TimePoint deadline) {
  MutexLock lock(mutex_);
  closed_ = true;
  while (inside_ > 0) {
    if (!empty_.WaitUntil(mutex_, deadline) && inside_ > 0) {
      return Status::DeadlineExceeded(fmt::format("{} calls are still in the store", inside_));
    }
  }
  return Status::Ok();
}

bool CallGate::closed() {
  MutexLock lock(mutex_);
  return closed_;
}

void CallGate::Leave() {
  MutexLock lock(mutex_);
  // Under the lock, so that a waiter in Close cannot destroy the condition first.
  if (--inside_ == 0) empty_.NotifyAll();
}

}  // namespace embercache
