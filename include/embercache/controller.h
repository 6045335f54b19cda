#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "embercache/clock.h"
#include "embercache/embedding.h"
#include "embercache/status.h"
#include "embercache/store.h"
#include "embercache/tp_group.h"

namespace embercache {

class CopyOperation;
class Executor;
class HostCache;
class PrefetchRequest;
class Timer;
struct Metrics;

// Where an item's embedding came from.
enum class Source : uint8_t {
  kLocal,   // the host cache
  kGlobal,  // the store
  kJoined,  // another request was already computing or fetching it
};

struct LookupItem {
  EmbeddingKey key;
  // Rows, where the caller knows them; -1: the store is asked for the size first.
  int64_t expected_tokens = -1;
};

// The one answer that each item of a lookup gets. Exactly one of these is set:
//   pin        a hit
//   claim      a miss: the caller leads, and has to compute and commit it, or to abort
//   status     not ok: a leader that was waited for failed (look it up again: one of those who do
//              leads), the deadline passed while waiting, or the key is held in another shape
struct LookupAnswer {
  Status status;
  Pin pin;
  Claim claim;
  Source source = Source::kLocal;
  // Time in the store, for items that were looked for there.
  Duration fetch_time{};
  // With a claim: what the store did. The claim's Reserve will probably fail when there was no
  // room.
  bool store_failed = false;
  bool no_room = false;
};

// Called once an item, with its index: from within Lookup, from a lane, from the timer, or from
// whoever commits what is waited for. Calls for different items may overlap. Must be short, and
// must not call back into Lookup's caller's locks.
using LookupCallback = std::function<void(size_t index, LookupAnswer answer)>;

struct InsertResult {
  uint64_t new_count = 0;        // computed on this node and queued for the first time
  uint64_t local_hit_count = 0;  // all other ready ones
  uint64_t skipped_count = 0;    // not ready: no room, filling, evicted
};

enum class PrefetchState : uint8_t { kPending, kDone, kExpired };

enum class PrefetchOutcome : uint8_t {
  kPending,
  kLocal,
  kGlobal,
  kJoined,   // ready now; another request fetched or computed it
  kMissing,  // not in the store, or not there in a usable form
  kNoRoom,   // no pages: it is not in the host cache
  kFailed,   // the store or the leader failed, or the deadline passed
};

// An embedding that the caller has computed, to be copied into the pool.
struct PoolItem {
  EmbeddingKey key;
  // [tokens, hidden], row-major, contiguous.
  ConstBuffer rows;
  uint64_t tokens = 0;
  std::string metadata;
  // Kept until the copy is over, so that `rows` stays valid whatever becomes of the handle.
  std::shared_ptr<const void> owner;
};

enum class CopyOutcome : uint8_t {
  kPending,
  kCopied,
  kPresent,  // it was ready already
  kJoined,   // another is filling it; nothing was copied
  kMissing,  // load: not in the host cache
  kNoRoom,   // store: no pages
  kFailed,   // sizes that do not fit; nothing was copied
};

// Copies under way; dropping the handle leaves them to end by themselves.
using CopyHandle = std::shared_ptr<CopyOperation>;

struct PoolOptions {
  Modality modality = Modality::kImage;
  // Bytes a row. Image and video rows of one size share a pool.
  uint64_t row_bytes = 0;
};

struct ControllerOptions {
  // For all pools and their trailer blocks together. 0: no host cache; everything is served
  // uncached.
  uint64_t max_pool_bytes = 0;
  // Row sizes to make pools for. Vision gets 80 %, audio 20 %, or all of it where the other has
  // none; several row sizes of one modality split its share evenly.
  std::vector<PoolOptions> pools;
  // Memory for items that get no pages.
  uint64_t max_uncached_bytes = uint64_t{256} << 20;
  bool enable_eviction = true;
  uint32_t max_eviction_batch = 100;
  // Evict by encoder cost saved instead of by least recent use.
  bool cost_aware_eviction = false;
  // Deadline of prefetches.
  Duration lookup_timeout = std::chrono::milliseconds(500);
  // Pins of a prefetched request that nobody released are given back after so long.
  Duration request_ttl = std::chrono::minutes(10);
  // Deadline of publications.
  Duration publish_timeout = std::chrono::seconds(30);
  // A publish that the store confirmed need not ask it again for so long (± 25 %); 0: always asks.
  Duration publish_confirm = Duration::zero();
  // Publish embeddings that hold NaN or Inf too.
  bool publish_nonfinite = false;
  // Store calls in flight at once; at least 2 of each.
  size_t get_workers = 4;
  size_t put_workers = 2;
  uint64_t max_get_queue_bytes = uint64_t{1} << 30;
  uint64_t max_put_queue_bytes = uint64_t{256} << 20;
  bool prefault = true;
  // Called as pool memory becomes usable; may be empty.
  std::function<void(const std::string& pool, uint64_t done_bytes, uint64_t total_bytes)> progress;
  uint64_t seed = 1;
  // The ranks that serve together; null for one. Without all_rank_get only the lead, rank 0, has
  // pools and a store: one host cache a node, not one a rank.
  std::shared_ptr<TpGroup> tp_group;
  bool all_rank_get = false;
  // How long a rank waits for the others to agree.
  Duration tp_timeout = std::chrono::seconds(1);
};

// What a controller stands on. Null members get defaults: threads of its own, the steady clock, no
// store, metrics that nobody reads.
struct ControllerParts {
  std::shared_ptr<EmbeddingStore> store;
  std::shared_ptr<Executor> get_executor;
  std::shared_ptr<Executor> put_executor;
  std::shared_ptr<Executor> copy_executor;
  std::shared_ptr<Timer> timer;
  const Clock* clock = nullptr;
  std::shared_ptr<Metrics> metrics;
};

struct PoolView {
  std::string name;
  uint64_t row_bytes = 0, page_bytes = 0;
  uint64_t pages = 0, free = 0, filling = 0, ready = 0, quarantined = 0;
  uint64_t entries = 0, filling_entries = 0, pinned_entries = 0, evicted = 0;
  uint64_t allocation_failures = 0;
  std::string page_kind;
};

struct LaneView {
  std::string name;
  uint64_t queued = 0, running = 0, queued_bytes = 0, dropped = 0;
  bool breaker_open = false;
};

struct ControllerStats {
  std::vector<PoolView> pools;  // the arena is the last one, named "uncached"
  std::vector<LaneView> lanes;  // empty without a store
  std::string backend;          // empty without a store
  StoreHealth store;
};

// The cache of one node: host memory in front of a shared store, with single flight, prefetch and
// publication. Fails open: whatever the store does, an item is a miss at the latest when its
// deadline passes. Thread-safe; no call blocks on the store but Close.
class EmbeddingCacheController {
 public:
  static Result<std::unique_ptr<EmbeddingCacheController>> Create(ControllerOptions options,
                                                                  ControllerParts parts);
  // Close(now + 1 s), unless Close was called.
  ~EmbeddingCacheController();

  // Looks all items up, first here, then in the store in one batch, and answers each as soon as it
  // is known. A key that comes twice is led once; the other waits for it (Source::kJoined).
  // `deadline` bounds the time in the store; items that wait for another's work are answered by
  // `wait_deadline`. Logs "=== Multi-Level Cache Check === …" once, when all but the joined ones
  // are known.
  void Lookup(const EmbeddingSpec& spec, std::span<const LookupItem> items, TimePoint deadline,
              TimePoint wait_deadline, LookupCallback callback);

  // One embedding by its key alone, of any of `specs`: what is in the host cache, else what the
  // store has, read into the request arena; nothing is inserted. `done` is called once, by
  // `deadline`: with a pin, or NotFound, ResourceExhausted (no room in the arena now) or
  // Unavailable (the store did not answer).
  void Read(const EmbeddingKey& key, std::vector<EmbeddingSpec> specs, TimePoint deadline,
            std::function<void(Result<Pin>)> done);

  // SGLang's words. Fetches what is not here into the host cache, for the request `req_id`, which
  // keeps pins of all that became ready until ReleaseRequest. AlreadyExists when the request is
  // known already.
  Status Prefetch(std::string_view req_id, const EmbeddingSpec& spec,
                  std::span<const LookupItem> items);
  // kDone when every item is resolved, and for a request that is not known; kExpired instead when
  // the deadline, the lookup_timeout, was what ended it for some. With a TpGroup a collective call,
  // and the same on every rank: pending while any rank's is, expired when the lead's is or when the
  // ranks could not agree in time.
  PrefetchState CheckPrefetchProgress(std::string_view req_id) const;
  // Per item, of this rank; empty for a request that is not known.
  std::vector<PrefetchOutcome> PrefetchOutcomes(std::string_view req_id) const;
  // Which of the request's `items` items are ready; with a TpGroup a collective call, and only what
  // is ready on every rank that fetches. All false when the ranks could not agree in time.
  std::vector<bool> PrefetchMask(std::string_view req_id, size_t items) const;
  // Waits until the request is done, at most until `deadline`.
  PrefetchState WaitPrefetch(std::string_view req_id, TimePoint deadline) const;
  // Gives the request's pins back. NotFound for a request that is not known.
  Status ReleaseRequest(std::string_view req_id);

  // Offers every ready one of `keys` to the store in one batch, those that were local hits too: the
  // store drops what it has, and what one node has all nodes get. Never waits. Read pins hold until
  // the store returns.
  InsertResult InsertBatch(std::span<const EmbeddingKey> keys);

  // Copies embeddings into the host cache, where each is ready, and can be published, once its copy
  // is done. Per item: see CopyOutcome. The pins of what is ready stay with the handle.
  CopyHandle StoreToPoolAsync(const EmbeddingSpec& spec, std::vector<PoolItem> items);
  // Copies one ready embedding to `destination`, which has to be of its size and to live until the
  // operation is over; `owner` is kept until then.
  CopyHandle LoadToDeviceAsync(const EmbeddingKey& key, MutableBuffer destination,
                               std::shared_ptr<const void> owner);
  // The outcomes, once all are known or `deadline` has passed (kPending then). Both waits are one.
  static std::vector<CopyOutcome> WaitCopies(const CopyHandle& handle, TimePoint deadline);
  // One pin a key, empty for those that are not ready: views of the pool, without a copy.
  std::vector<Pin> GetPoolViews(std::span<const EmbeddingKey> keys);

  // A pin of what is in the host cache now, or an empty one.
  Pin TryPin(const EmbeddingKey& key);
  bool HasLocalEmbedding(const EmbeddingKey& key) const;
  // Presence here or, in one call, in the store. `done` gets one flag an item; store errors count
  // as absent.
  void BatchIsExist(std::span<const EmbeddingKey> keys, TimePoint deadline,
                    std::function<void(std::vector<bool>)> done);
  // From the host cache, and where there is one from the store. `done` gets what the store said.
  void Remove(const EmbeddingKey& key, TimePoint deadline, std::function<void(RemoveResult)> done);

  ControllerStats Stats() const;
  bool has_store() const;
  // For the surfaces that need more than the above: tests and the Python package.
  HostCache& host_cache();

  // Stops taking work; waits until `deadline` for publications and fetches under way, then cancels
  // what is left. DeadlineExceeded when a store call had not returned: it is left behind with the
  // memory it uses. Idempotent.
  Status Close(TimePoint deadline);

  // Defined in src/cache/controller_impl.h.
  struct Impl;

 private:
  explicit EmbeddingCacheController(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace embercache
