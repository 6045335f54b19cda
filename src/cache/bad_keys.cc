#include "src/cache/bad_keys.h"

// Invariant: every key in keys_ has exactly one item of its number in order_; items of order_ whose
// number is not the key's are left-overs of Erase, dropped when they come to the front.

namespace embercache {
namespace {
constexpr Duration kRemovalInterval = std::chrono::milliseconds(100);
}

bool BadKeys::Add(const EmbeddingKey& key) {
  MutexLock lock(mutex_);
  const auto [it, inserted] = keys_.try_emplace(key, next_);
  if (!inserted) return false;
  order_.emplace_back(next_++, key);
  while (order_.size() > capacity_) {
    const auto oldest = keys_.find(order_.front().second);
    if (oldest != keys_.end() && oldest->second == order_.front().first) keys_.erase(oldest);
    order_.pop_front();
  }
  return true;
}

bool BadKeys::Contains(const EmbeddingKey& key) const {
  MutexLock lock(mutex_);
  return keys_.contains(key);
}

void BadKeys::Erase(const EmbeddingKey& key) {
  MutexLock lock(mutex_);
  keys_.erase(key);
}

size_t BadKeys::size() const {
  MutexLock lock(mutex_);
  return keys_.size();
}

bool BadKeys::AdmitRemoval(TimePoint now) {
  MutexLock lock(mutex_);
  if (now < next_removal_) return false;
  next_removal_ = now + kRemovalInterval;
  return true;
}

}  // namespace embercache
