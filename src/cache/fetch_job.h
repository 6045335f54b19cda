#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "src/cache/global_cache.h"

namespace embercache {

// One batch of fetches, run on a worker of the GET lane: sizes where they are not known, memory,
// the transfer, verification, and a second try for what was of another size or did not verify. Owns
// all that the store may touch.
class FetchJob {
 public:
  // Items of one of `specs`. With `by_key`, what is of a namespace that none of them has is
  // somebody else's, and a miss; else there is one spec, and anything else is corrupt.
  FetchJob(GlobalCache& cache, std::vector<EmbeddingSpec> specs, bool by_key,
           std::vector<FetchItem> items);

  // For the lane's queue.
  uint64_t queue_bytes() const;
  Status Run(const CallContext& context);
  // After Run has returned.
  std::vector<FetchResult> TakeResults() { return std::move(results_); }

 private:
  // An item on its way; leaves `pending_` once results_[index] is final.
  struct Pending {
    size_t index;
    uint64_t payload_bytes = 0;  // what was reserved
    uint64_t trailer_blocks = 1;
    int bad_reads = 0;
    int wrong_sizes = 0;
    std::vector<MutableBuffer> buffers;
    std::vector<ConstBuffer> content;  // of them all but the trailer
    RunningChecksum checksum;          // of what has come of it
    std::string key_text;
  };

  // One stat of the items without memory; false when there are none.
  bool StatUnknown(const CallContext& context);
  void GetRound(const CallContext& context);
  // While the store is at work.
  static void Hash(Pending& item, uint64_t received_bytes);
  std::vector<StatResult> Stat(std::span<const std::string_view> keys, const CallContext& context);
  // True for all below: the item goes on; false: its result is final.
  bool TakeStat(Pending& item, const StatResult& stat);
  bool Take(Pending& item, const GetResult& result, const CallContext& context);
  bool TakeWrongSize(Pending& item, const GetResult& result, const CallContext& context);
  bool TakeSize(Pending& item, uint64_t object_bytes, std::optional<ObjectVersion> version);
  bool Verify(Pending& item, const GetResult& result);
  // Null: the object is none of ours.
  const EmbeddingSpec* SpecOf(const Trailer& trailer) const;
  bool Incompatible(const Pending& item);
  bool Bad(Pending& item, std::optional<ObjectVersion> version, const Status& reason);
  bool BadAtStore(Pending& item, const char* op, const Status& reason);
  bool Reserve(Pending& item, uint64_t payload_bytes, uint64_t trailer_blocks);
  void Finish(const Pending& item, FetchOutcome outcome);
  // The store does not have it.
  void Absent(const Pending& item);
  void Fail(const Pending& item, const char* op, const Status& status);

  GlobalCache& cache_;
  const std::vector<EmbeddingSpec> specs_;
  const bool by_key_;
  std::vector<FetchItem> items_;
  std::vector<FetchResult> results_;
  std::vector<Pending> pending_;
  // Of the last store call that failed, and whether any item got an answer: for the breaker.
  Status failure_;
  bool answered_ = false;
};

}  // namespace embercache
