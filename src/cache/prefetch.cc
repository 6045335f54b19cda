#include "src/cache/prefetch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "src/base/log.h"
#include "src/cache/controller_impl.h"

namespace embercache {
namespace {

PrefetchOutcome OutcomeOf(const LookupAnswer& answer) {
  if (answer.pin) {
    // What is not in the cache, nobody could find there.
    if (!answer.pin.cached()) return PrefetchOutcome::kNoRoom;
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
  if (answer.pin.cached() && !released_) pins_.push_back(std::move(answer.pin));
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

Status EmbeddingCacheController::Prefetch(std::string_view req_id, const EmbeddingSpec& spec,
                                          std::span<const LookupItem> items) {
  auto request = std::make_shared<PrefetchRequest>(items.size());
  {
    MutexLock lock(impl_->mutex);
    if (impl_->closed) return Status::Cancelled("the cache is closed");
    if (!impl_->requests.try_emplace(std::string(req_id), request).second) {
      return Status::AlreadyExists(
          fmt::format("request '{}' is being prefetched; release it first", req_id));
    }
  }
  const TimePoint now = impl_->clock->Now();
  request->ExpireAt(
      now + impl_->options.request_ttl, impl_->timer,
      [weak_impl = std::weak_ptr(impl_), id = std::string(req_id), expired = request.get()] {
        LOG_WARNING("request '{}': its pins were never released; given back now", id);
        if (const auto impl = weak_impl.lock()) impl->Forget(id, expired);
      });
  if (!impl_->fetches()) return Status::Ok();  // the lead does
  const TimePoint deadline = now + impl_->options.lookup_timeout;
  // BatchIsExist, which a server asks first, has logged the check.
  StartLookup(impl_, spec, items, deadline, deadline, CheckLine::kNone,
              [request, deadline, clock = impl_->clock](size_t index, LookupAnswer answer) {
                request->Take(index, std::move(answer), clock->Now() >= deadline);
              });
  return Status::Ok();
}

Status EmbeddingCacheController::ReleaseRequest(std::string_view req_id) {
  std::shared_ptr<PrefetchRequest> request;
  {
    MutexLock lock(impl_->mutex);
    const auto it = impl_->requests.find(req_id);
    if (it == impl_->requests.end()) {
      return Status::NotFound(fmt::format("request '{}' holds no pins", req_id));
    }
    request = std::move(it->second);
    impl_->requests.erase(it);
  }
  (void)request->Release();
  return Status::Ok();
}

void EmbeddingCacheController::Impl::Forget(const std::string& req_id,
                                            const PrefetchRequest* request) {
  MutexLock lock(mutex);
  const auto it = requests.find(req_id);
  // A newer request may have the name by now.
  if (it != requests.end() && it->second.get() == request) requests.erase(it);
}

std::shared_ptr<PrefetchRequest> EmbeddingCacheController::Impl::FindRequest(
    std::string_view req_id) const {
  MutexLock lock(mutex);
  const auto it = requests.find(req_id);
  return it == requests.end() ? nullptr : it->second;
}

PrefetchState EmbeddingCacheController::CheckPrefetchProgress(std::string_view req_id) const {
  const auto request = impl_->FindRequest(req_id);
  const PrefetchState state = request ? request->state() : PrefetchState::kDone;
  TpGroup* const group = impl_->options.tp_group.get();
  if (group == nullptr || group->size() == 1) return state;
  // A rank that has no say brings the largest value to a minimum.
  const uint8_t settled =
      !impl_->fetches() ? UINT8_MAX : static_cast<uint8_t>(state != PrefetchState::kPending);
  const uint8_t in_time =
      group->rank() != 0 ? UINT8_MAX : static_cast<uint8_t>(state != PrefetchState::kExpired);
  const std::array<uint8_t, 2> values = {settled, in_time};
  const Result<std::vector<uint8_t>> agreed =
      group->AllReduceMin(values, impl_->clock->Now() + impl_->options.tp_timeout);
  if (!agreed.ok()) {
    LOG_WARNING("request '{}': the ranks do not agree: {}", req_id, agreed.status().ToString());
    return PrefetchState::kExpired;
  }
  if ((*agreed)[1] == 0) return PrefetchState::kExpired;
  return (*agreed)[0] == 0 ? PrefetchState::kPending : PrefetchState::kDone;
}

std::vector<PrefetchOutcome> EmbeddingCacheController::PrefetchOutcomes(
    std::string_view req_id) const {
  const auto request = impl_->FindRequest(req_id);
  return request ? request->outcomes() : std::vector<PrefetchOutcome>();
}

std::vector<bool> EmbeddingCacheController::PrefetchMask(std::string_view req_id,
                                                         size_t items) const {
  const std::vector<PrefetchOutcome> outcomes = PrefetchOutcomes(req_id);
  std::vector<uint8_t> ready(items, impl_->fetches() ? 0 : UINT8_MAX);
  for (size_t i = 0; i < std::min(items, outcomes.size()) && impl_->fetches(); ++i) {
    ready[i] = IsReady(outcomes[i]);
  }
  TpGroup* const group = impl_->options.tp_group.get();
  if (group != nullptr && group->size() > 1) {
    Result<std::vector<uint8_t>> agreed =
        group->AllReduceMin(ready, impl_->clock->Now() + impl_->options.tp_timeout);
    if (!agreed.ok()) {
      LOG_WARNING("request '{}': the ranks do not agree: {}", req_id, agreed.status().ToString());
      return std::vector<bool>(items);
    }
    ready = *std::move(agreed);
  }
  std::vector<bool> mask(items);
  for (size_t i = 0; i < items; ++i) mask[i] = ready[i] == 1;
  return mask;
}

PrefetchState EmbeddingCacheController::WaitPrefetch(std::string_view req_id,
                                                     TimePoint deadline) const {
  const auto request = impl_->FindRequest(req_id);
  return request ? request->WaitUntil(deadline) : PrefetchState::kDone;
}

}  // namespace embercache
