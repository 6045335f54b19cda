#include "src/cache/bad_keys.h"

// Invariant: keys_ maps each key of order_ to its place there.

namespace embercache {
namespace {
constexpr Duration kRemovalInterval = std::chrono::milliseconds(100);
}

bool BadKeys::Add(const EmbeddingKey& key) {
  MutexLock lock(mutex_);
  if (keys_.contains(key)) return false;
  keys_.emplace(key, order_.insert(order_.end(), key));
  if (keys_.size() > capacity_) {
    keys_.erase(order_.front());
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
  const auto found = keys_.find(key);
  if (found == keys_.end()) return;
  order_.erase(found->second);
  keys_.erase(found);
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
