#pragma once

#include <cstdint>

#include "embercache/clock.h"
#include "src/base/mutex.h"

namespace embercache {

// What bounds requests, and may be changed while the server runs; the flags of the same names.
struct Limits {
  // Items admitted and not answered; a request beyond is answered 503 at once.
  uint64_t queue_items = 96;
  uint64_t max_items = 64;
  uint64_t max_body_bytes = 64'000'000;
  Duration lookup_timeout = std::chrono::milliseconds(500);
  Duration request_timeout = std::chrono::seconds(30);
};

// The limits in force. Thread-safe.
class LiveLimits {
 public:
  explicit LiveLimits(const Limits& limits) : limits_(limits) {}

  Limits Get() const {
    MutexLock lock(mutex_);
    return limits_;
  }
  void Set(const Limits& limits) {
    MutexLock lock(mutex_);
    limits_ = limits;
  }

 private:
  mutable Mutex mutex_;
  Limits limits_ GUARDED_BY(mutex_);
};

}  // namespace embercache
