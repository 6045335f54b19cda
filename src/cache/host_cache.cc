#include "src/cache/host_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "src/base/sync_point.h"

// Invariants, checked by CheckInvariants:
// - an entry is filling (owned by one claim, no pins, in no policy) or ready;
// - a policy holds exactly the indexed ready entries of its pool without pins;
// - evictable_pages and evictable_trailers are the sums over what the policy holds;
// - of each pool, the pages of all entries and those in quarantine and free make the pool.
// An entry is in index_ or in removed_; from there the last of its claim and pins frees it.

namespace embercache {
namespace {

// Whether an empty pool holds so much.
bool MayFit(const PagePool& pool, uint64_t payload_bytes, uint32_t trailer_blocks) {
  return payload_bytes <= pool.num_pages() * pool.page_bytes() &&
         trailer_blocks <= pool.num_pages();
}

}  // namespace

std::shared_ptr<HostCache> HostCache::Create(HostCacheOptions options) {
  return std::shared_ptr<HostCache>(new HostCache(std::move(options)));
}

HostCache::HostCache(HostCacheOptions options) : options_(std::move(options)) {
  assert(options_.max_eviction_batch > 0);
}

HostCache::~HostCache() {
  MutexLock lock(mutex_);
  for (const auto& state : pools_) state->evictable.reset();  // before the entries that it links
}

uint32_t HostCache::AddPool(std::shared_ptr<PagePool> pool) {
  MutexLock lock(mutex_);
  auto state = std::make_unique<PoolState>();
  state->pool = std::move(pool);
  state->evictable = NewEvictionPolicy(options_.eviction, options_.seed);
  pools_.push_back(std::move(state));
  return static_cast<uint32_t>(pools_.size() - 1);
}

void HostCache::SetArena(std::shared_ptr<PagePool> arena) {
  MutexLock lock(mutex_);
  arena_ = std::move(arena);
}

size_t HostCache::num_pools() const {
  MutexLock lock(mutex_);
  return pools_.size();
}

std::shared_ptr<PagePool> HostCache::pool(uint32_t index) const {
  MutexLock lock(mutex_);
  return pools_[index]->pool;
}

Pin HostCache::PinLocked(CacheEntry& entry) {
  assert(entry.ready);
  if (entry.pins++ == 0) {
    if (entry.indexed) TakeFromEvictable(entry);
    ++pools_[entry.pool]->stats.pinned;
  }
  return Pin(shared_from_this(), &entry, entry.block);
}

void HostCache::MakeEvictable(CacheEntry& entry) {
  PoolState& state = *pools_[entry.pool];
  entry.last_used = options_.clock->Now();
  state.evictable->Add(entry);
  state.evictable_pages += entry.block->num_pages();
  state.evictable_trailers += entry.block->num_trailer_blocks();
}

void HostCache::TakeFromEvictable(CacheEntry& entry) {
  PoolState& state = *pools_[entry.pool];
  state.evictable->Remove(entry);
  state.evictable_pages -= entry.block->num_pages();
  state.evictable_trailers -= entry.block->num_trailer_blocks();
}

std::unique_ptr<CacheEntry> HostCache::Unlink(CacheEntry& entry) {
  assert(entry.indexed);
  const auto it = index_.find(entry.key);
  std::unique_ptr<CacheEntry> owned = std::move(it->second);
  index_.erase(it);
  entry.indexed = false;
  if (entry.pool != kNoPool) {
    HostCacheStats& stats = pools_[entry.pool]->stats;
    --(entry.ready ? stats.ready : stats.filling);
  }
  return owned;
}

std::unique_ptr<CacheEntry> HostCache::TakeOut(CacheEntry* entry) {
  if (entry->indexed) return Unlink(*entry);
  return std::move(removed_.extract(entry).mapped());
}

bool HostCache::IsWanted(const CacheEntry& entry) const {
  MutexLock lock(mutex_);
  return !entry.waiters.empty();
}

HostCache::Lookup HostCache::FindOrClaim(const EmbeddingKey& key, const EmbeddingSpec& spec,
                                         uint32_t pool, Waiter waiter) {
  Lookup lookup;
  if (spec.row_bytes() == 0) {
    lookup.status = Status::Invalid(fmt::format("key {}: rows of {} × {}", key.digest.ToHex(),
                                                spec.hidden, DTypeName(spec.dtype)));
    return lookup;
  }
  MutexLock lock(mutex_);
  auto [it, inserted] = index_.try_emplace(key);
  if (inserted) {
    it->second = std::make_unique<CacheEntry>();
    CacheEntry& entry = *it->second;
    entry.key = key;
    entry.spec = spec;
    entry.pool = pool;
    if (pool != kNoPool) ++pools_[pool]->stats.filling;
    lookup.claim = Claim(shared_from_this(), &entry);
    return lookup;
  }
  CacheEntry& entry = *it->second;
  if (entry.spec != spec) {
    lookup.status = Status::Invalid(
        fmt::format("key {} is held as {} rows of {} × {}, and was asked for as {} rows of {} × {}",
                    key.digest.ToHex(), ModalityName(entry.spec.modality), entry.spec.hidden,
                    DTypeName(entry.spec.dtype), ModalityName(spec.modality), spec.hidden,
                    DTypeName(spec.dtype)));
  } else if (entry.ready) {
    lookup.pin = PinLocked(entry);
    ++entry.uses;
  } else {
    lookup.ticket = next_ticket_++;
    entry.waiters.push_back({lookup.ticket, std::move(waiter)});
  }
  return lookup;
}

bool HostCache::CancelWait(const EmbeddingKey& key, uint64_t ticket) {
  Waiter dropped;  // destroyed outside the lock
  const auto take = [&](CacheEntry& entry) {
    const auto found = std::find_if(entry.waiters.begin(), entry.waiters.end(),
                                    [&](const auto& w) { return w.ticket == ticket; });
    if (found == entry.waiters.end()) return false;
    dropped = std::move(found->waiter);
    entry.waiters.erase(found);
    return true;
  };
  MutexLock lock(mutex_);
  const auto it = index_.find(key);
  bool taken = it != index_.end() && take(*it->second);
  // The fill that it waits for may have been removed, and the key be there anew.
  for (auto removed = removed_.begin(); !taken && removed != removed_.end(); ++removed) {
    taken = take(*removed->second);
  }
  lock.Unlock();
  return taken;
}

Pin HostCache::TryPin(const EmbeddingKey& key, bool count_use) {
  MutexLock lock(mutex_);
  const auto it = index_.find(key);
  if (it == index_.end() || !it->second->ready) return Pin();
  if (count_use) ++it->second->uses;
  return PinLocked(*it->second);
}

bool HostCache::Contains(const EmbeddingKey& key) const {
  MutexLock lock(mutex_);
  const auto it = index_.find(key);
  return it != index_.end() && it->second->ready;
}

bool HostCache::MarkPublished(const Pin& pin) {
  if (!pin.cached()) return false;
  MutexLock lock(mutex_);
  CacheEntry& entry = *pin.entry_;
  return entry.computed && !std::exchange(entry.published, true);
}

bool HostCache::Remove(const EmbeddingKey& key) {
  std::unique_ptr<CacheEntry> dead;
  MutexLock lock(mutex_);
  const auto it = index_.find(key);
  if (it == index_.end()) return false;
  CacheEntry& entry = *it->second;
  if (entry.ready && entry.pins == 0) TakeFromEvictable(entry);
  std::unique_ptr<CacheEntry> owned = Unlink(entry);
  if (entry.ready && entry.pins == 0) {
    dead = std::move(owned);
  } else {
    removed_.emplace(&entry, std::move(owned));
  }
  lock.Unlock();
  return true;
}

void HostCache::Release(CacheEntry* entry) {
  std::unique_ptr<CacheEntry> dead;
  MutexLock lock(mutex_);
  assert(entry->pins > 0);
  if (--entry->pins > 0) return;
  --pools_[entry->pool]->stats.pinned;
  if (entry->indexed) {
    MakeEvictable(*entry);
  } else {
    dead = TakeOut(entry);
  }
  lock.Unlock();
}

Pin HostCache::Share(const Pin& pin) {
  MutexLock lock(mutex_);
  ++pin.entry_->pins;
  return Pin(shared_from_this(), pin.entry_, pin.block_);
}

bool HostCache::EvictStep(PoolState& state, uint32_t pages, uint32_t trailers, Dead* dead) {
  const PagePoolStats pool = state.pool->Stats();
  uint64_t free_pages = pool.free;
  uint64_t free_trailers = pool.trailer_blocks_free;
  // Nothing is evicted for what would not fit anyway.
  if (free_pages + state.evictable_pages < pages ||
      free_trailers + state.evictable_trailers < trailers || state.evictable->size() == 0) {
    return false;
  }
  const TimePoint now = options_.clock->Now();
  for (uint32_t i = 0; i < options_.max_eviction_batch && state.evictable->size() > 0; ++i) {
    auto* victim = static_cast<CacheEntry*>(state.evictable->Victim(now));
    state.stats.evicted_bytes += victim->bytes;
    free_pages += victim->block->num_pages();
    free_trailers += victim->block->num_trailer_blocks();
    TakeFromEvictable(*victim);
    dead->push_back(Unlink(*victim));
    // The pages go back here, so that the one who evicts gets them; the rest is freed outside.
    victim->block->ReturnMemory();
    if (free_pages >= pages && free_trailers >= trailers) break;
  }
  state.stats.evicted += dead->size();
  ++state.stats.eviction_rounds;
  return true;
}

bool HostCache::AllocateEvicting(PoolState& state, uint64_t payload_bytes, uint32_t trailers,
                                 PageList* memory) {
  const uint32_t pages = state.pool->PagesFor(payload_bytes);
  for (;;) {
    SYNC_POINT("host: before eviction step");
    Dead dead;
    bool allocated = false;
    {
      MutexLock lock(mutex_);
      allocated = state.pool->Allocate(pages, trailers, false, memory);
      if (!allocated && options_.enable_eviction && EvictStep(state, pages, trailers, &dead)) {
        allocated = state.pool->Allocate(pages, trailers, false, memory);
      }
      if (allocated) {
        state.stats.allocated_bytes += payload_bytes;
      } else if (dead.empty()) {
        ++state.stats.allocation_failures;
      }
    }
    if (!dead.empty() && options_.on_evicted) options_.on_evicted(state.pool->name(), dead.size());
    if (allocated || dead.empty()) return allocated;
  }
}

Status HostCache::Reserve(CacheEntry* entry, uint64_t payload_bytes, uint64_t metadata_bytes) {
  if (payload_bytes == 0) return Status::Invalid("an embedding of 0 bytes");
  if (metadata_bytes > kMaxMetadataBytes) {
    return Status::Invalid(
        fmt::format("metadata of {} bytes; the limit is {}", metadata_bytes, kMaxMetadataBytes));
  }
  DropMemory(entry);
  const auto trailers = static_cast<uint32_t>(TrailerBlocks(metadata_bytes));
  PoolState* state = nullptr;
  std::shared_ptr<PagePool> arena;
  {
    MutexLock lock(mutex_);
    if (entry->pool != kNoPool) state = pools_[entry->pool].get();
    arena = arena_;
  }
  PageList memory;
  const char* reason = "no_pool";
  if (state != nullptr) {
    if (!MayFit(*state->pool, payload_bytes, trailers)) {
      reason = "too_large";
    } else if (AllocateEvicting(*state, payload_bytes, trailers, &memory)) {
      entry->block = std::make_shared<Block>(std::move(memory), payload_bytes);
      return Status::Ok();
    } else {
      reason = "no_room";
    }
  }
  const bool fits = arena != nullptr && MayFit(*arena, payload_bytes, trailers) &&
                    arena->Allocate(arena->PagesFor(payload_bytes), trailers, true, &memory);
  if (options_.on_uncached) options_.on_uncached(fits ? reason : "arena_full");
  if (!fits) {
    return Status::ResourceExhausted(fmt::format(
        "no memory for an embedding of {} bytes: the pool says {}, the request arena is "
        "full or too small",
        payload_bytes, reason));
  }
  entry->block = std::make_shared<Block>(std::move(memory), payload_bytes);
  entry->uncached = true;
  return Status::Ok();
}

void HostCache::DropMemory(CacheEntry* entry) {
  if (!entry->block) return;
  // Whoever else has the block is a transfer that has not returned.
  if (entry->block.use_count() > 1) entry->block->Quarantine();
  entry->block.reset();
  entry->uncached = false;
}

Result<Pin> HostCache::Commit(CacheEntry* entry, uint64_t tokens, std::string metadata,
                              double cost_ms, bool from_store) {
  Status status;
  if (!entry->block) {
    status = Status::Invalid("commit without memory reserved");
  } else if (tokens == 0 || tokens > entry->block->reserved_bytes() / entry->spec.row_bytes()) {
    status = Status::Invalid(fmt::format("{} tokens of {} bytes do not fit the {} bytes reserved",
                                         tokens, entry->spec.row_bytes(),
                                         entry->block->reserved_bytes()));
  } else if (TrailerBlocks(metadata.size()) > entry->block->num_trailer_blocks()) {
    status = Status::Invalid(
        fmt::format("metadata of {} bytes exceeds what was reserved", metadata.size()));
  }
  if (!status.ok()) {
    Abort(entry, status);
    return status;
  }
  entry->block->Seal(
      {.key = entry->key, .spec = entry->spec, .tokens = tokens, .metadata = std::move(metadata)},
      from_store);
  SYNC_POINT("host: sealed");
  std::vector<CacheEntry::Waiting> waiters;
  std::vector<Pin> pins;
  std::unique_ptr<CacheEntry> dead;
  Pin own;
  {
    MutexLock lock(mutex_);
    waiters.swap(entry->waiters);
    if (entry->uncached) {
      dead = TakeOut(entry);
      own = Pin(shared_from_this(), nullptr, entry->block);
      for (size_t i = 0; i < waiters.size(); ++i) pins.push_back(own.Share());
    } else {
      PoolState& state = *pools_[entry->pool];
      if (entry->indexed) {
        --state.stats.filling;
        ++state.stats.ready;
      }
      entry->ready = true;
      entry->computed = !from_store;
      entry->bytes = entry->block->info().payload_bytes();
      entry->cost_ms = cost_ms;
      entry->pins = 1;
      ++state.stats.pinned;
      own = Pin(shared_from_this(), entry, entry->block);
      for (size_t i = 0; i < waiters.size(); ++i) pins.push_back(PinLocked(*entry));
      entry->uses = static_cast<uint32_t>(waiters.size());
    }
  }
  SYNC_POINT("host: before waiters");
  for (size_t i = 0; i < waiters.size(); ++i) waiters[i].waiter(std::move(pins[i]));
  return own;
}

void HostCache::Abort(CacheEntry* entry, const Status& reason) {
  DropMemory(entry);
  std::unique_ptr<CacheEntry> dead;
  std::vector<CacheEntry::Waiting> waiters;
  {
    MutexLock lock(mutex_);
    waiters.swap(entry->waiters);
    dead = TakeOut(entry);
  }
  for (CacheEntry::Waiting& waiting : waiters) waiting.waiter(reason);
}

HostCacheStats HostCache::Stats(uint32_t pool) const {
  MutexLock lock(mutex_);
  return pools_[pool]->stats;
}

Status HostCache::CheckInvariants() const {
  MutexLock lock(mutex_);
  struct Sums {
    uint64_t ready = 0, filling = 0, pinned = 0, ready_pages = 0;
    uint64_t evictable = 0, evictable_pages = 0, evictable_trailers = 0;
  };
  std::vector<Sums> sums(pools_.size());
  const auto check = [&sums](const CacheEntry& entry) -> const char* {
    if (!entry.ready && entry.pins != 0) return "a filling entry is pinned";
    if (entry.ready && !entry.waiters.empty()) return "a ready entry has waiters";
    if (entry.ready && (entry.uncached || !entry.block)) return "a ready entry has no pages";
    if (entry.pool == kNoPool) return entry.ready ? "a ready entry has no pool" : nullptr;
    Sums& sum = sums[entry.pool];
    if (entry.indexed) ++(entry.ready ? sum.ready : sum.filling);
    if (!entry.ready) return nullptr;
    sum.ready_pages += entry.block->num_pages();
    if (entry.pins > 0) ++sum.pinned;
    if (!entry.indexed || entry.pins > 0) return nullptr;
    ++sum.evictable;
    sum.evictable_pages += entry.block->num_pages();
    sum.evictable_trailers += entry.block->num_trailer_blocks();
    return nullptr;
  };
  for (const auto& [key, entry] : index_) {
    if (entry->key != key || !entry->indexed) return Status::Internal("index: a foreign entry");
    if (const char* fault = check(*entry)) return Status::Internal(fault);
  }
  for (const auto& [address, entry] : removed_) {
    if (entry->indexed) return Status::Internal("removed: an indexed entry");
    if (entry->ready && entry->pins == 0) return Status::Internal("removed: nobody frees it");
    if (const char* fault = check(*entry)) return Status::Internal(fault);
  }
  for (size_t i = 0; i < pools_.size(); ++i) {
    const PoolState& state = *pools_[i];
    const Sums& sum = sums[i];
    const PagePoolStats pool = state.pool->Stats();
    const char* fault = nullptr;
    if (sum.evictable != state.evictable->size()) {
      fault = "what is evictable is not what is ready and unpinned";
    } else if (sum.evictable_pages != state.evictable_pages ||
               sum.evictable_trailers != state.evictable_trailers) {
      fault = "the sums of what is evictable are off";
    } else if (sum.ready != state.stats.ready || sum.filling != state.stats.filling ||
               sum.pinned != state.stats.pinned) {
      fault = "the numbers of entries are off";
    } else if (pool.ready < sum.ready_pages) {
      fault = "ready entries have more pages than the pool knows";
    }
    if (fault != nullptr) {
      return Status::Internal(fmt::format("pool {}: {}", state.pool->name(), fault));
    }
  }
  return Status::Ok();
}

}  // namespace embercache
