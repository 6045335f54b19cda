#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "embercache/clock.h"
#include "embercache/embedding.h"
#include "embercache/status.h"
#include "src/base/mutex.h"
#include "src/cache/block.h"
#include "src/cache/eviction_policy.h"
#include "src/memory/page_pool.h"

namespace embercache {

struct HostCacheOptions {
  bool enable_eviction = true;
  // Entries evicted before the lock is given up once. At least 1.
  uint32_t max_eviction_batch = 100;
  EvictionKind eviction = EvictionKind::kLru;
  uint64_t seed = 1;
  const Clock* clock = &SteadyClock();
  // Called outside the lock; may be empty. Pool name and number of entries.
  std::function<void(const std::string& pool, uint64_t entries)> on_evicted;
  // An item was kept out of the cache: "no_pool", "too_large" or "no_room"; or it got no memory at
  // all: "arena_full". As above.
  std::function<void(const char* reason)> on_uncached;
};

struct HostCacheStats {
  uint64_t ready = 0;
  uint64_t filling = 0;
  uint64_t pinned = 0;  // ready entries with at least one pin
  uint64_t evicted = 0;
  uint64_t evicted_bytes = 0;    // their payloads
  uint64_t eviction_rounds = 0;  // each evicted one entry to max_eviction_batch
  uint64_t allocated_bytes = 0;  // payloads that got pages, at the length they were reserved with
  uint64_t allocation_failures = 0;
};

// Index of the host cache: what is ready, what is being filled, who waits for it, what may be
// evicted. One mutex; callbacks and I/O run outside it. Thread-safe. Held by shared_ptr: pins and
// claims keep it alive.
class HostCache : public std::enable_shared_from_this<HostCache> {
 public:
  // Gets a pin of its own, or the reason why the one who led did not finish. Called once, outside
  // the lock, on the thread that ends the fill; never once CancelWait has returned true.
  using Waiter = std::function<void(Result<Pin>)>;

  // Exactly one of pin, claim and ticket is set when status is ok.
  struct Lookup {
    Status status;
    Pin pin;
    Claim claim;
    uint64_t ticket = 0;
  };

  static std::shared_ptr<HostCache> Create(HostCacheOptions options);
  ~HostCache();

  // The index that FindOrClaim takes. Which specs live in which pool is the caller's affair.
  uint32_t AddPool(std::shared_ptr<PagePool> pool);
  // Memory for what gets no pages of a pool. Without one such items fail with ResourceExhausted.
  void SetArena(std::shared_ptr<PagePool> arena);
  size_t num_pools() const;
  std::shared_ptr<PagePool> pool(uint32_t index) const;

  // The point of single flight. Ready: a pin. Being filled by another: `waiter` is kept, and a
  // ticket returned. Neither: the caller leads. `pool` is where the entry's pages come from;
  // kNoPool: nowhere, it will be uncached. Invalid when the key is there with another spec, and for
  // rows of 0 bytes.
  static constexpr uint32_t kNoPool = UINT32_MAX;
  Lookup FindOrClaim(const EmbeddingKey& key, const EmbeddingSpec& spec, uint32_t pool,
                     Waiter waiter);
  // True: the waiter was taken out and will not be called. False: it was called, or is about to be.
  bool CancelWait(const EmbeddingKey& key, uint64_t ticket);

  // A pin when the key is ready, else an empty one. `count_use` is false for look-ups that are no
  // use of the entry, such as publishing it.
  Pin TryPin(const EmbeddingKey& key, bool count_use = true);
  bool Contains(const EmbeddingKey& key) const;
  // Ready, and computed on this node and not marked before: the first publish of it.
  bool MarkPublished(const Pin& pin);
  // Takes the key out of the index. Pins of it stay good; a fill in progress still answers those
  // who wait, and is not kept. False when it was not there.
  bool Remove(const EmbeddingKey& key);

  HostCacheStats Stats(uint32_t pool) const;
  // The invariants of docs/design/cache.md; Internal names the one that does not hold. Linear. Of
  // the pools' page counts it checks what holds at any time, not what holds only between calls.
  Status CheckInvariants() const;

 private:
  friend class Pin;
  friend class Claim;
  friend struct CacheEntry;

  struct PoolState {
    std::shared_ptr<PagePool> pool;
    std::unique_ptr<EvictionPolicy> evictable;
    uint64_t evictable_pages = 0;
    uint64_t evictable_trailers = 0;
    HostCacheStats stats;
  };
  using Dead = std::vector<std::unique_ptr<CacheEntry>>;

  explicit HostCache(HostCacheOptions options);

  Pin PinLocked(CacheEntry& entry) REQUIRES(mutex_);
  void MakeEvictable(CacheEntry& entry) REQUIRES(mutex_);
  void TakeFromEvictable(CacheEntry& entry) REQUIRES(mutex_);
  // Takes an entry out of the index.
  std::unique_ptr<CacheEntry> Unlink(CacheEntry& entry) REQUIRES(mutex_);
  // Takes an entry whose claim or last pin ended out of the index, or of what was removed.
  std::unique_ptr<CacheEntry> TakeOut(CacheEntry* entry) REQUIRES(mutex_);
  bool AllocateEvicting(PoolState& state, uint64_t payload_bytes, uint32_t trailers,
                        PageList* memory) EXCLUDES(mutex_);
  // Evicts until the pages and trailers fit or the batch is full; false when nothing can be
  // evicted.
  bool EvictStep(PoolState& state, uint32_t pages, uint32_t trailers, Dead* dead) REQUIRES(mutex_);

  void Release(CacheEntry* entry);
  bool IsWanted(const CacheEntry& entry) const;
  Pin Share(const Pin& pin);
  Status Reserve(CacheEntry* entry, uint64_t payload_bytes, uint64_t metadata_bytes);
  void DropMemory(CacheEntry* entry);
  Result<Pin> Commit(CacheEntry* entry, uint64_t tokens, std::string metadata, double cost_ms,
                     bool from_store);
  void Abort(CacheEntry* entry, const Status& reason);

  const HostCacheOptions options_;
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<PoolState>> pools_ GUARDED_BY(mutex_);
  std::shared_ptr<PagePool> arena_ GUARDED_BY(mutex_);
  boost::unordered_flat_map<EmbeddingKey, std::unique_ptr<CacheEntry>, EmbeddingKeyHash> index_
      GUARDED_BY(mutex_);
  // Removed from the index while filling or pinned: each lives until its claim and pins are gone.
  std::unordered_map<CacheEntry*, std::unique_ptr<CacheEntry>> removed_ GUARDED_BY(mutex_);
  uint64_t next_ticket_ GUARDED_BY(mutex_) = 1;
};

// One key in the host cache. Its fields are guarded by the cache's mutex, but for `block`, which
// the one who holds the claim may read without it.
struct CacheEntry : public EvictionNode {
  struct Waiting {
    uint64_t ticket;
    HostCache::Waiter waiter;
  };

  EmbeddingKey key;
  EmbeddingSpec spec;
  uint32_t pool = HostCache::kNoPool;
  bool ready = false;
  // False once removed.
  bool indexed = true;
  bool computed = false;
  bool published = false;
  // The memory came from the arena.
  bool uncached = false;
  uint32_t pins = 0;
  std::shared_ptr<Block> block;
  std::vector<Waiting> waiters;
};

}  // namespace embercache
