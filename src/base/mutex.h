#pragma once

// A mutex that clang's thread-safety analysis understands (preset thread-safety), and a condition
// variable for it. https://clang.llvm.org/docs/ThreadSafetyAnalysis.html names the attributes.

#include <condition_variable>
#include <mutex>

#include "embercache/clock.h"

#if defined(__clang__)
#define EMBERCACHE_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define EMBERCACHE_THREAD_ATTRIBUTE(x)
#endif

#define EMBERCACHE_CAPABILITY(x) EMBERCACHE_THREAD_ATTRIBUTE(capability(x))
#define EMBERCACHE_SCOPED_CAPABILITY EMBERCACHE_THREAD_ATTRIBUTE(scoped_lockable)
#define GUARDED_BY(x) EMBERCACHE_THREAD_ATTRIBUTE(guarded_by(x))
#define PT_GUARDED_BY(x) EMBERCACHE_THREAD_ATTRIBUTE(pt_guarded_by(x))
#define REQUIRES(...) EMBERCACHE_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) EMBERCACHE_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) EMBERCACHE_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define RELEASE(...) EMBERCACHE_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define NO_THREAD_SAFETY_ANALYSIS EMBERCACHE_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace embercache {

class EMBERCACHE_CAPABILITY("mutex") Mutex {
 public:
  void Lock() ACQUIRE() { mutex_.lock(); }
  void Unlock() RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a Mutex for a scope; Unlock and Lock open a gap in it.
class EMBERCACHE_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() RELEASE() {
    if (held_) mutex_.Unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Unlock() RELEASE() {
    held_ = false;
    mutex_.Unlock();
  }
  void Lock() ACQUIRE() {
    mutex_.Lock();
    held_ = true;
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

// Waits give up the mutex and take it again before they return. Wake-ups may be spurious.
class CondVar {
 public:
  void Wait(Mutex& mutex) REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // False when the deadline passed.
  bool WaitUntil(Mutex& mutex, TimePoint deadline) REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool in_time = condition_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace embercache
