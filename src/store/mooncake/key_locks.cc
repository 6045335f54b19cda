#include "src/store/mooncake/key_locks.h"

#include <algorithm>
#include <utility>

namespace embercache::mooncake {

KeyLocks::Hold::~Hold() {
  if (locks_ == nullptr) return;
  MutexLock lock(locks_->mutex_);
  for (const std::string& key : keys_) locks_->held_.erase(key);
  locks_->freed_.NotifyAll();
}

KeyLocks::Hold KeyLocks::Take(std::vector<std::string> keys, TimePoint deadline) {
  MutexLock lock(mutex_);
  const auto is_held = [this](const std::string& key)
                           REQUIRES(mutex_) { return held_.contains(key); };
  while (std::any_of(keys.begin(), keys.end(), is_held)) {
    if (!freed_.WaitUntil(mutex_, deadline)) return Hold(nullptr, {});
  }
  held_.insert(keys.begin(), keys.end());
  return Hold(this, std::move(keys));
}

}  // namespace embercache::mooncake
