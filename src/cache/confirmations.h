#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "embercache/clock.h"
#include "embercache/key.h"
#include "src/base/mutex.h"

namespace embercache {

// Keys that the store said to hold lately, so that publishing them need not ask it again for a
// while. Bounded: a key may push another one out, which is then asked for again. Thread-safe.
class Confirmations {
 public:
  // Each holds for `length` ± 25 %, by chance, so that the nodes of a fleet do not ask in step.
  // With 0 nothing is ever confirmed.
  Confirmations(Duration length, uint64_t seed);

  // Take it before the store is asked: what was forgotten meanwhile is not confirmed by Add.
  uint64_t generation() const;
  // The store has it. The confirmation holds for `longest` at most.
  void Add(const EmbeddingKey& key, uint64_t generation, Duration longest, TimePoint now);
  bool Contains(const EmbeddingKey& key, TimePoint now) const;
  // The store may have lost what it confirmed.
  void Forget();
  // The store does not have it. When it had confirmed it, it may have lost others too: all are
  // forgotten.
  void Missed(const EmbeddingKey& key, TimePoint now);
  // All are forgotten when `era` is not what it was at the last call (EmbeddingStore::Era).
  void Follow(uint64_t era);

 private:
  struct Slot {
    EmbeddingKey key;
    uint64_t generation = 0;
    TimePoint until;
  };

  bool ContainsLocked(const EmbeddingKey& key, TimePoint now) const REQUIRES(mutex_);
  static size_t SlotOf(const EmbeddingKey& key);

  const Duration length_;
  mutable Mutex mutex_;
  std::vector<Slot> slots_ GUARDED_BY(mutex_);
  uint64_t generation_ GUARDED_BY(mutex_) = 1;  // a slot of another one is empty
  uint64_t era_ GUARDED_BY(mutex_) = 0;
  std::minstd_rand random_ GUARDED_BY(mutex_);
};

}  // namespace embercache
