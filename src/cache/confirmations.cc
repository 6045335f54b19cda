#include "src/cache/confirmations.h"

#include <algorithm>

namespace embercache {
namespace {
// 1 MiB of memory; as many embeddings as a node publishes in a minute, and some.
constexpr size_t kSlots = 1 << 14;
}  // namespace

Confirmations::Confirmations(Duration length, uint64_t seed)
    : length_(length),
      slots_(length > Duration::zero() ? kSlots : 0),
      random_(static_cast<std::minstd_rand::result_type>(seed)) {}

size_t Confirmations::SlotOf(const EmbeddingKey& key) {
  return EmbeddingKeyHash()(key) % kSlots;
}

uint64_t Confirmations::generation() const {
  MutexLock lock(mutex_);
  return generation_;
}

void Confirmations::Add(const EmbeddingKey& key, uint64_t generation, Duration longest,
                        TimePoint now) {
  if (length_ == Duration::zero()) return;
  MutexLock lock(mutex_);
  std::uniform_real_distribution<double> jitter(0.75, 1.25);
  const Duration length(
      static_cast<Duration::rep>(jitter(random_) * static_cast<double>(length_.count())));
  slots_[SlotOf(key)] = {key, generation, now + std::min(length, longest)};
}

bool Confirmations::ContainsLocked(const EmbeddingKey& key, TimePoint now) const {
  if (slots_.empty()) return false;
  const Slot& slot = slots_[SlotOf(key)];
  return slot.generation == generation_ && slot.key == key && now < slot.until;
}

bool Confirmations::Contains(const EmbeddingKey& key, TimePoint now) const {
  MutexLock lock(mutex_);
  return ContainsLocked(key, now);
}

void Confirmations::Forget() {
  MutexLock lock(mutex_);
  ++generation_;
}

void Confirmations::Missed(const EmbeddingKey& key, TimePoint now) {
  MutexLock lock(mutex_);
  if (ContainsLocked(key, now)) ++generation_;
}

void Confirmations::Follow(uint64_t era) {
  MutexLock lock(mutex_);
  if (era != era_) ++generation_;
  era_ = era;
}

}  // namespace embercache
