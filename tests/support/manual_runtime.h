#pragma once

// Time, threads and timers that a test moves by hand, so that it decides what happens when.

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "embercache/clock.h"
#include "src/base/executor.h"
#include "src/base/mutex.h"

namespace embercache {

// Stands still until it is advanced. Begins long before the steady clock's now, so that real waits
// for its deadlines end at once.
class ManualClock final : public Clock {
 public:
  TimePoint Now() const override { return TimePoint(Duration(now_ns_.load())); }
  void Advance(Duration time) { now_ns_ += time.count(); }

 private:
  std::atomic<int64_t> now_ns_{1000};
};

// Keeps tasks until a thread of the test runs them.
class ManualExecutor final : public Executor {
 public:
  void Post(std::function<void()> task) override {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }

  size_t size() const {
    MutexLock lock(mutex_);
    return tasks_.size();
  }

  // Runs the task at `index`; false when there is none.
  bool RunOne(size_t index = 0) {
    std::function<void()> task;
    {
      MutexLock lock(mutex_);
      if (index >= tasks_.size()) return false;
      const auto it = tasks_.begin() + static_cast<std::ptrdiff_t>(index);
      task = std::move(*it);
      tasks_.erase(it);
    }
    task();
    return true;
  }

  size_t RunAll() {
    size_t ran = 0;
    while (RunOne()) ++ran;
    return ran;
  }

 private:
  mutable Mutex mutex_;
  std::deque<std::function<void()>> tasks_ GUARDED_BY(mutex_);
};

// Runs tasks when the test says so, if the clock has reached them.
class ManualTimer final : public Timer {
 public:
  explicit ManualTimer(const ManualClock* clock) : clock_(clock) {}

  uint64_t Schedule(TimePoint when, std::function<void()> task) override {
    MutexLock lock(mutex_);
    const uint64_t id = ++last_id_;
    tasks_.emplace(std::make_pair(when, id), std::move(task));
    return id;
  }

  bool Cancel(uint64_t id) override {
    std::function<void()> dropped;  // destroyed after the lock
    MutexLock lock(mutex_);
    for (auto it = tasks_.begin(); it != tasks_.end(); ++it) {
      if (it->first.second != id) continue;
      dropped = std::move(it->second);
      tasks_.erase(it);
      return true;
    }
    return false;
  }

  // Runs what is due, the earliest first. Returns how many ran.
  size_t RunDue() {
    size_t ran = 0;
    for (;; ++ran) {
      std::function<void()> task;
      {
        MutexLock lock(mutex_);
        if (tasks_.empty() || tasks_.begin()->first.first > clock_->Now()) return ran;
        task = std::move(tasks_.begin()->second);
        tasks_.erase(tasks_.begin());
      }
      task();
    }
  }

  size_t size() const {
    MutexLock lock(mutex_);
    return tasks_.size();
  }

 private:
  const ManualClock* const clock_;
  mutable Mutex mutex_;
  uint64_t last_id_ GUARDED_BY(mutex_) = 0;
  std::map<std::pair<TimePoint, uint64_t>, std::function<void()>> tasks_ GUARDED_BY(mutex_);
};

}  // namespace embercache
