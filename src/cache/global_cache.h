#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "embercache/clock.h"
#include "embercache/embedding.h"
#include "embercache/store.h"
#include "src/base/executor.h"
#include "src/base/log.h"
#include "src/base/metrics.h"
#include "src/base/mutex.h"
#include "src/cache/bad_keys.h"
#include "src/cache/block.h"
#include "src/cache/confirmations.h"
#include "src/io/transfer_lane.h"

namespace embercache {

class FetchJob;

// Memory for an object that is to be fetched: payload bytes, and blocks for the trailer. Called on
// a lane's worker; answers Cancelled once the fetch is over for the one who asked.
using ReserveBlock =
    std::function<Result<std::shared_ptr<Block>>(uint64_t payload_bytes, uint64_t trailer_blocks)>;

struct FetchItem {
  EmbeddingKey key;
  int64_t expected_tokens = -1;
  // Reserved already for expected_tokens rows and one trailer block; null when the size is not
  // known.
  std::shared_ptr<Block> block;
  ReserveBlock reserve;
};

enum class FetchOutcome : uint8_t {
  kHit,     // block holds the verified object, its trailer included
  kMiss,    // not there, or not usable
  kNoRoom,  // reserve gave nothing
  kFailed,  // the store failed, or not in time
};

struct FetchResult {
  FetchOutcome outcome = FetchOutcome::kFailed;
  std::shared_ptr<Block> block;
  EmbeddingSpec spec;
  uint64_t tokens = 0;
  std::string metadata;
};

struct GlobalCacheOptions {
  TransferLaneOptions get;
  TransferLaneOptions put;
  Duration publish_confirm = Duration::zero();
  // Publish embeddings that hold NaN or Inf.
  bool publish_nonfinite = false;
  uint64_t seed = 1;
};

// The shared store as a cache of embeddings: key texts, envelopes, verification of each object that
// is read, removal of bad ones, and what was published lately. What it hands out is verified; any
// object that is not exactly what was asked for is a miss. Thread-safe; no call waits for the store
// but Close.
class GlobalCache : public std::enable_shared_from_this<GlobalCache> {
 public:
  static std::shared_ptr<GlobalCache> Create(std::shared_ptr<EmbeddingStore> store,
                                             GlobalCacheOptions options,
                                             std::shared_ptr<Executor> get_executor,
                                             std::shared_ptr<Executor> put_executor,
                                             std::shared_ptr<Timer> timer, const Clock* clock,
                                             std::shared_ptr<Metrics> metrics);

  // One batch. `done` is called once, by `deadline`, with one result an item. Blocks that a store
  // call may still write to are kept by it until it returns. `pool` is where the items' memory
  // comes from, or null: when more than a quarter of it is in the hands of such calls already,
  // `done` is called at once.
  void Fetch(const EmbeddingSpec& spec, std::vector<FetchItem> items, const PagePool* pool,
             TimePoint deadline, std::function<void(std::vector<FetchResult>)> done);
  // One object by its key alone, of any of `specs`; `memory` is where it is read to. `done` gets a
  // pin, or NotFound, ResourceExhausted (no memory now) or Unavailable (the store did not answer).
  void Read(const EmbeddingKey& key, std::vector<EmbeddingSpec> specs,
            const std::shared_ptr<PagePool>& memory, TimePoint deadline,
            std::function<void(Result<Pin>)> done);
  // Puts what the pins hold, unless the store confirmed it lately. The pins are held until the
  // store call has returned.
  void Publish(std::vector<Pin> pins, TimePoint deadline);
  // One flag a key; failures count as absent.
  void Exist(std::vector<EmbeddingKey> keys, TimePoint deadline,
             std::function<void(std::vector<bool>)> done);
  void Remove(const EmbeddingKey& key, TimePoint deadline, std::function<void(RemoveResult)> done);

  EmbeddingStore& store() { return *store_; }
  TransferLaneStats get_stats() const { return get_lane_->Stats(); }
  TransferLaneStats put_stats() const { return put_lane_->Stats(); }
  // Announces pool memory to the store, until Close. Call before the first transfer.
  Status RegisterBuffer(const BufferRegion& region);
  // Both lanes, then the store; by `deadline`. Memory that a call may still use stays registered.
  Status Close(TimePoint deadline);

 private:
  friend class FetchJob;
  struct PublishJob;

  GlobalCache(std::shared_ptr<EmbeddingStore> store, GlobalCacheOptions options, const Clock* clock,
              std::shared_ptr<Metrics> metrics);

  // Calls the store, and gives exactly one result an item, whatever the store does: those that it
  // does not answer, or throws at, have failed with Internal. `op`: exist, stat, get, put, remove.
  template <typename ResultType, typename Call>
  std::vector<ResultType> CallStore(const char* op, size_t items, Call call);
  void SubmitFetch(std::shared_ptr<FetchJob> job, size_t items, TimePoint deadline,
                   std::function<void(std::vector<FetchResult>)> done);
  // The time a store call took.
  void Observe(const char* op, TimePoint start);
  void CountBytes(const char* op, uint64_t bytes);
  // What came of its items.
  void Count(const char* op, const char* result, uint64_t items = 1);
  // Of a call that failed: "timeout", "refused" or "error".
  static const char* FailureLabel(const Status& status);
  // Of a job that the lane answered without the store.
  static const char* RefusalLabel(const Status& status);

  // An object was not what it should be.
  void CountCorruption(const EmbeddingKey& key, const Status& reason);
  // It was so on two reads: remembered, and removed if that is possible, at a limited rate.
  void ReportBad(const EmbeddingKey& key, std::optional<ObjectVersion> version);
  void SubmitRemove(const EmbeddingKey& key, std::optional<ObjectVersion> version,
                    TimePoint deadline, std::function<void(RemoveResult)> done);
  void SubmitPublish(std::vector<Pin> pins, TimePoint deadline);
  Status RunPublish(PublishJob& job, const CallContext& context);
  Status TakePut(const Pin& pin, PutMode mode, const PutResult& result,
                 uint64_t confirm_generation);
  void CountPublished(const char* result, uint64_t items);
  void LogFailure(const char* what, const Status& status);
  // False when puts that have not returned hold more than a quarter of a pool of these pins.
  bool TakePutPages(const std::vector<Pin>& pins);
  void ReturnPutPages(const std::vector<Pin>& pins);

  const std::shared_ptr<EmbeddingStore> store_;
  // Objects come from the store with checksums of their payloads. Those that a RawStore has put
  // into an envelope itself have none, and only those: nothing is between it and this.
  const bool has_checksums_;
  const GlobalCacheOptions options_;
  const Clock* const clock_;
  const std::shared_ptr<Metrics> metrics_;
  std::unique_ptr<TransferLane> get_lane_;
  std::unique_ptr<TransferLane> put_lane_;
  BadKeys bad_keys_;
  Confirmations confirmations_;
  LogLimiter corrupt_log_;
  LogLimiter incompatible_log_;
  LogLimiter failure_log_;

  Mutex mutex_;
  std::unordered_map<const PagePool*, uint64_t> put_pages_ GUARDED_BY(mutex_);
  std::vector<BufferRegion> regions_ GUARDED_BY(mutex_);
};

template <typename ResultType, typename Call>
std::vector<ResultType> GlobalCache::CallStore(const char* op, size_t items, Call call) {
  const TimePoint start = clock_->Now();
  std::vector<ResultType> results;
  Status missing;
  try {
    results = call();
    if (results.size() < items) {
      missing = Status::Internal(
          fmt::format("the store answered {} of {} items of a {}", results.size(), items, op));
    }
  } catch (const std::exception& e) {
    missing = Status::Internal(fmt::format("the store threw: {}", e.what()));
  } catch (...) {
    missing = Status::Internal("the store threw something that is no std::exception");
  }
  Observe(op, start);
  const size_t answered = results.size();
  results.resize(items);
  for (size_t i = answered; i < items; ++i) results[i].status = missing;
  return results;
}

}  // namespace embercache
