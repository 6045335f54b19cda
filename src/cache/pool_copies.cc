#include <array>
#include <cstring>
#include <utility>

#include "src/cache/controller_impl.h"

// Copies between the pool and memory of the caller's. A copy owns the claim or the pin it works on,
// so an entry never stays filling because a handle was lost; one that is never run, since the
// executor has stopped, has failed.

namespace embercache {

class CopyOperation {
 public:
  explicit CopyOperation(size_t items) : outcomes_(items, CopyOutcome::kPending) {}

  void Finish(size_t index, CopyOutcome outcome, Pin pin) {
    MutexLock lock(mutex_);
    outcomes_[index] = outcome;
    if (pin) pins_.push_back(std::move(pin));
    if (++finished_ == outcomes_.size()) done_.NotifyAll();
  }

  std::vector<CopyOutcome> Wait(TimePoint deadline) {
    MutexLock lock(mutex_);
    while (finished_ < outcomes_.size()) {
      if (!done_.WaitUntil(mutex_, deadline)) break;
    }
    return outcomes_;
  }

 private:
  Mutex mutex_;
  CondVar done_;
  std::vector<CopyOutcome> outcomes_ GUARDED_BY(mutex_);
  std::vector<Pin> pins_ GUARDED_BY(mutex_);
  size_t finished_ GUARDED_BY(mutex_) = 0;
};

namespace {

// One item of an operation; without Finish it has failed.
class CopyPart {
 public:
  CopyPart(std::shared_ptr<CopyOperation> operation, size_t index)
      : operation_(std::move(operation)), index_(index) {}
  ~CopyPart() {
    if (operation_) Finish(CopyOutcome::kFailed, {});
  }
  CopyPart(const CopyPart&) = delete;
  CopyPart& operator=(const CopyPart&) = delete;

  void Finish(CopyOutcome outcome, Pin pin) {
    std::exchange(operation_, nullptr)->Finish(index_, outcome, std::move(pin));
  }

 private:
  std::shared_ptr<CopyOperation> operation_;
  const size_t index_;
};

void CopyIn(ConstBuffer from, std::span<const MutableBuffer> to) {
  for (MutableBuffer buffer : to) {
    std::memcpy(buffer.data(), from.data(), buffer.size());
    from = from.subspan(buffer.size());
  }
}

}  // namespace

CopyHandle EmbeddingCacheController::StoreToPoolAsync(const EmbeddingSpec& spec,
                                                      std::vector<PoolItem> items) {
  auto operation = std::make_shared<CopyOperation>(items.size());
  const uint32_t pool = impl_->FindPool(spec);
  for (size_t i = 0; i < items.size(); ++i) {
    PoolItem& item = items[i];
    if (item.tokens == 0 || item.rows.size() / item.tokens != spec.row_bytes() ||
        item.rows.size() % item.tokens != 0) {
      operation->Finish(i, CopyOutcome::kFailed, {});
      continue;
    }
    HostCache::Lookup found = impl_->cache->FindOrClaim(item.key, spec, pool, [](Result<Pin>) {});
    if (!found.claim) {
      const CopyOutcome outcome = found.pin           ? CopyOutcome::kPresent
                                  : found.ticket != 0 ? CopyOutcome::kJoined
                                                      : CopyOutcome::kFailed;
      operation->Finish(i, outcome, std::move(found.pin));
      continue;
    }
    const Status reserved = found.claim.Reserve(item.rows.size(), item.metadata.size());
    if (!reserved.ok() || found.claim.uncached()) {
      found.claim.Abort(Status::ResourceExhausted("no pages for an embedding that was to be kept"));
      operation->Finish(i, CopyOutcome::kNoRoom, {});
      continue;
    }
    // std::function wants copyable captures.
    auto claim = std::make_shared<Claim>(std::move(found.claim));
    auto part = std::make_shared<CopyPart>(operation, i);
    impl_->copies->Post([part, claim, item = std::move(item)]() mutable {
      CopyIn(item.rows, claim->buffers());
      Result<Pin> pin = claim->Commit(item.tokens, std::move(item.metadata));
      if (pin.ok()) part->Finish(CopyOutcome::kCopied, *std::move(pin));
    });
  }
  return operation;
}

CopyHandle EmbeddingCacheController::LoadToDeviceAsync(const EmbeddingKey& key,
                                                       MutableBuffer destination,
                                                       std::shared_ptr<const void> owner) {
  auto operation = std::make_shared<CopyOperation>(1);
  auto part = std::make_shared<CopyPart>(operation, 0);
  auto pin = std::make_shared<Pin>(impl_->cache->TryPin(key));
  if (!*pin || pin->info().payload_bytes() != destination.size()) {
    part->Finish(*pin ? CopyOutcome::kFailed : CopyOutcome::kMissing, {});
    return operation;
  }
  impl_->copies->Post([part, pin, destination, owner = std::move(owner)] {
    MutableBuffer rest = destination;
    for (ConstBuffer buffer : pin->buffers()) {
      std::memcpy(rest.data(), buffer.data(), buffer.size());
      rest = rest.subspan(buffer.size());
    }
    pin->Release();
    part->Finish(CopyOutcome::kCopied, {});
  });
  return operation;
}

std::vector<CopyOutcome> EmbeddingCacheController::WaitCopies(const CopyHandle& handle,
                                                              TimePoint deadline) {
  return handle->Wait(deadline);
}

std::vector<Pin> EmbeddingCacheController::GetPoolViews(std::span<const EmbeddingKey> keys) {
  std::vector<Pin> pins;
  pins.reserve(keys.size());
  for (const EmbeddingKey& key : keys) pins.push_back(impl_->cache->TryPin(key));
  return pins;
}

}  // namespace embercache
