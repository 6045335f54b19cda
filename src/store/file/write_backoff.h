#pragma once

#include <algorithm>
#include <chrono>

#include "embercache/clock.h"
#include "embercache/status.h"
#include "src/base/mutex.h"

namespace embercache {

// After a put that the disk failed, the next ones answer with the same failure, without trying, for
// 100 ms; twice as long after each more, 10 s at most. Thread-safe.
class WriteBackoff {
 public:
  // OK when a put may try.
  Status Check(TimePoint now) {
    MutexLock lock(mutex_);
    return now < retry_at_ ? trouble_ : Status::Ok();
  }
  void Succeeded() {
    MutexLock lock(mutex_);
    trouble_ = Status::Ok();
    delay_ = kFirstDelay;
    retry_at_ = TimePoint::min();
  }
  void Failed(const Status& status, TimePoint now) {
    MutexLock lock(mutex_);
    trouble_ = status;
    retry_at_ = now + delay_;
    delay_ = std::min(delay_ * 2, kLastDelay);
  }
  // Of the last put; OK when it succeeded.
  Status trouble() {
    MutexLock lock(mutex_);
    return trouble_;
  }

 private:
  static constexpr Duration kFirstDelay = std::chrono::milliseconds(100);
  static constexpr Duration kLastDelay = std::chrono::seconds(10);

  Mutex mutex_;
  Status trouble_ GUARDED_BY(mutex_);
  Duration delay_ GUARDED_BY(mutex_) = kFirstDelay;
  TimePoint retry_at_ GUARDED_BY(mutex_) = TimePoint::min();
};

}  // namespace embercache
