#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "embercache/controller.h"
#include "src/base/executor.h"
#include "src/base/mutex.h"

namespace embercache {

// Whether the item is in the host cache now, held for the request.
inline bool IsReady(PrefetchOutcome outcome) {
  return outcome == PrefetchOutcome::kLocal || outcome == PrefetchOutcome::kGlobal ||
         outcome == PrefetchOutcome::kJoined;
}

// One request's prefetch: outcomes, and pins of all that is ready. Thread-safe.
class PrefetchRequest : public std::enable_shared_from_this<PrefetchRequest> {
 public:
  explicit PrefetchRequest(size_t items) : outcomes_(items, PrefetchOutcome::kPending) {}

  // The LookupCallback of the request. Misses end here: their claims are given up. `late`: the
  // deadline of the fetch had passed by then.
  void Take(size_t index, LookupAnswer answer, bool late);
  PrefetchState state() const;
  std::vector<PrefetchOutcome> outcomes() const;
  PrefetchState WaitUntil(TimePoint deadline);
  // Unless released before, releases at `when` and then calls `expired`. Call once.
  void ExpireAt(TimePoint when, std::shared_ptr<Timer> timer, std::function<void()> expired);
  // Gives the pins back, those too that are still to come. False when that was done before.
  bool Release();

 private:
  PrefetchState StateLocked() const REQUIRES(mutex_);

  mutable Mutex mutex_;
  CondVar done_;
  std::vector<PrefetchOutcome> outcomes_ GUARDED_BY(mutex_);
  std::vector<Pin> pins_ GUARDED_BY(mutex_);
  size_t resolved_ GUARDED_BY(mutex_) = 0;
  bool expired_ GUARDED_BY(mutex_) = false;
  bool released_ GUARDED_BY(mutex_) = false;
  std::shared_ptr<Timer> timer_ GUARDED_BY(mutex_);
  uint64_t expiry_ GUARDED_BY(mutex_) = 0;
};

}  // namespace embercache
