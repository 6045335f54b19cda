#pragma once

#include <cstddef>
#include <list>
#include <unordered_map>

#include "embercache/clock.h"
#include "embercache/key.h"
#include "src/base/mutex.h"

namespace embercache {

// Keys whose stored object is known to be bad, so that publishing them replaces it instead of
// skipping. Bounded: the oldest is forgotten, and found bad again at its next read. Thread-safe.
class BadKeys {
 public:
  explicit BadKeys(size_t capacity = 4096) : capacity_(capacity) {}

  // True when it was not known.
  bool Add(const EmbeddingKey& key);
  bool Contains(const EmbeddingKey& key) const;
  // It was removed or replaced.
  void Erase(const EmbeddingKey& key);
  size_t size() const;
  // Whether an object may be removed now: at most 10 a second.
  bool AdmitRemoval(TimePoint now);

 private:
  const size_t capacity_;
  mutable Mutex mutex_;
  std::list<EmbeddingKey> order_ GUARDED_BY(mutex_);  // the oldest first
  std::unordered_map<EmbeddingKey, std::list<EmbeddingKey>::iterator, EmbeddingKeyHash> keys_
      GUARDED_BY(mutex_);
  TimePoint next_removal_ GUARDED_BY(mutex_);
};

}  // namespace embercache
