#include "src/cache/prefetch.h"

#include <utility>

namespace embercache {
namespace {

PrefetchOutcome OutcomeOf(const LookupAnswer& answer) {
  if (answer.pin) {
    if (answer.source == Source::kLocal) return PrefetchOutcome::kLocal;
    return answer.source == Source::kGlobal ? PrefetchOutcome::kGlobal : PrefetchOutcome::kJoined;
  }
  if (answer.claim) {
    if (answer.no_room) return PrefetchOutcome::kNoRoom;
    return answer.store_failed ? PrefetchOutcome::kFailed : PrefetchOutcome::kMissing;
  }
  return answer.status.code() == StatusCode::kNotFound ? PrefetchOutcome::kMissing
                                                       : PrefetchOutcome::kFailed;
}

}  // namespace

void PrefetchRequest::Take(size_t index, LookupAnswer answer, bool late) {
  const PrefetchOutcome outcome = OutcomeOf(answer);
  if (answer.claim) answer.claim.Abort(Status::NotFound("a prefetch did not find the item"));
  MutexLock lock(mutex_);
  outcomes_[index] = outcome;
  ++resolved_;
  if (outcome == PrefetchOutcome::kFailed && late) expired_ = true;
  if (answer.pin && !released_) pins_.push_back(std::move(answer.pin));
  if (resolved_ == outcomes_.size()) done_.NotifyAll();
}

PrefetchState PrefetchRequest::StateLocked() const {
  if (resolved_ < outcomes_.size()) return PrefetchState::kPending;
  return expired_ ? PrefetchState::kExpired : PrefetchState::kDone;
}

PrefetchState PrefetchRequest::state() const {
  MutexLock lock(mutex_);
  return StateLocked();
}

std::vector<PrefetchOutcome> PrefetchRequest::outcomes() const {
  MutexLock lock(mutex_);
  return outcomes_;
}

PrefetchState PrefetchRequest::WaitUntil(TimePoint deadline) {
  MutexLock lock(mutex_);
  while (StateLocked() == PrefetchState::kPending) {
    if (!done_.WaitUntil(mutex_, deadline)) break;
  }
  return StateLocked();
}

void PrefetchRequest::ExpireAt(TimePoint when, std::shared_ptr<Timer> timer,
                               std::function<void()> expired) {
  const uint64_t id =
      timer->Schedule(when, [weak = weak_from_this(), expired = std::move(expired)] {
        const auto self = weak.lock();
        if (self && self->Release()) expired();
      });
  MutexLock lock(mutex_);
  if (!released_) {
    expiry_ = id;
    timer_ = std::move(timer);
    return;
  }
  lock.Unlock();
  timer->Cancel(id);
}

bool PrefetchRequest::Release() {
  std::vector<Pin> pins;  // given back outside the lock
  MutexLock lock(mutex_);
  const bool first = !std::exchange(released_, true);
  pins.swap(pins_);
  const std::shared_ptr<Timer> timer = std::move(timer_);
  const uint64_t expiry = expiry_;
  lock.Unlock();
  if (timer) timer->Cancel(expiry);
  return first;
}

}  // namespace embercache
