#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "embercache/clock.h"
#include "src/base/mutex.h"

namespace embercache::mooncake {

// Keys that are being written by this process: two puts of one key at once disturb each other.
// Thread-safe.
class KeyLocks {
 public:
  // Holds some keys; move-only. Outlived by its KeyLocks.
  class Hold {
   public:
    Hold(KeyLocks* locks, std::vector<std::string> keys) : locks_(locks), keys_(std::move(keys)) {}
    Hold(Hold&& other) noexcept
        : locks_(std::exchange(other.locks_, nullptr)), keys_(std::move(other.keys_)) {}
    Hold& operator=(Hold&&) = delete;
    ~Hold();

    explicit operator bool() const { return locks_ != nullptr; }

   private:
    KeyLocks* locks_;
    std::vector<std::string> keys_;
  };

  // All of the keys, which differ, at once; so no two callers can wait for each other. False when
  // the deadline passed first.
  Hold Take(std::vector<std::string> keys, TimePoint deadline);

 private:
  Mutex mutex_;
  CondVar freed_;
  std::set<std::string, std::less<>> held_ GUARDED_BY(mutex_);
};

}  // namespace embercache::mooncake
