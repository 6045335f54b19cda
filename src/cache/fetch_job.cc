#include "src/cache/fetch_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

// Invariant: an item is in pending_ or its result is final. Nothing is final as a hit but what
// Verify has checked, the payload included unless the store is a RawStore.

namespace embercache {
namespace {

// More than this, and the object changes faster than it can be read.
constexpr int kMaxWrongSizes = 2;
// What an item of unknown size counts as in the lane's queue: a common size, and a large one, since
// it may be.
constexpr uint64_t kUnknownItemBytes = 2 * kSmallJobBytes;

}  // namespace

FetchJob::FetchJob(GlobalCache& cache, std::vector<EmbeddingSpec> specs, bool by_key,
                   std::vector<FetchItem> items)
    : cache_(cache),
      specs_(std::move(specs)),
      by_key_(by_key),
      items_(std::move(items)),
      results_(items_.size()) {
  assert(by_key_ || specs_.size() == 1);
  pending_.reserve(items_.size());
  for (size_t i = 0; i < items_.size(); ++i) {
    Pending item{.index = i, .key_text = items_[i].key.Text()};
    if (items_[i].block) item.payload_bytes = items_[i].block->reserved_bytes();
    pending_.push_back(std::move(item));
  }
}

uint64_t FetchJob::queue_bytes() const {
  uint64_t bytes = 0;
  for (const Pending& item : pending_) {
    bytes += items_[item.index].block ? item.payload_bytes : kUnknownItemBytes;
  }
  return bytes;
}

void FetchJob::Finish(const Pending& item, FetchOutcome outcome) {
  results_[item.index].outcome = outcome;
  items_[item.index].block.reset();
}

void FetchJob::Absent(const Pending& item) {
  cache_.confirmations_.Missed(items_[item.index].key, cache_.clock_->Now());
  Finish(item, FetchOutcome::kMiss);
}

void FetchJob::Fail(const Pending& item, const char* op, const Status& status) {
  cache_.Count(op, GlobalCache::FailureLabel(status));
  failure_ = status;
  Finish(item, FetchOutcome::kFailed);
}

bool FetchJob::Reserve(Pending& item, uint64_t payload_bytes, uint64_t trailer_blocks) {
  items_[item.index].block.reset();
  Result<std::shared_ptr<Block>> block = items_[item.index].reserve(payload_bytes, trailer_blocks);
  if (!block.ok()) {
    Finish(item, FetchOutcome::kNoRoom);
    return false;
  }
  items_[item.index].block = *std::move(block);
  item.payload_bytes = payload_bytes;
  item.trailer_blocks = trailer_blocks;
  return true;
}

std::vector<StatResult> FetchJob::Stat(std::span<const std::string_view> keys,
                                       const CallContext& context) {
  return cache_.CallStore<StatResult>("stat", keys.size(),
                                      [&] { return cache_.store_->BatchStat(keys, context); });
}

bool FetchJob::TakeStat(Pending& item, const StatResult& stat) {
  if (!stat.status.ok()) {
    Fail(item, "stat", stat.status);
    return false;
  }
  answered_ = true;
  cache_.Count("stat", stat.found ? "ok" : "miss");
  if (stat.found) return true;
  Absent(item);
  return false;
}

bool FetchJob::StatUnknown(const CallContext& context) {
  std::vector<std::string_view> keys;
  for (const Pending& item : pending_) {
    if (!items_[item.index].block) keys.push_back(item.key_text);
  }
  if (keys.empty()) return false;
  const std::vector<StatResult> stats = Stat(keys, context);
  size_t next = 0;
  std::erase_if(pending_, [&](Pending& item) {
    if (items_[item.index].block) return false;
    const StatResult& stat = stats[next++];
    if (stat.status.code() == StatusCode::kCorruption)
      return !BadAtStore(item, "stat", stat.status);
    return !TakeStat(item, stat) || !TakeSize(item, stat.bytes, stat.version);
  });
  return true;
}

bool FetchJob::TakeWrongSize(Pending& item, const GetResult& result, const CallContext& context) {
  if (result.bytes != 0) return TakeSize(item, result.bytes, result.version);
  const std::string_view key = item.key_text;
  const StatResult stat = Stat(std::span(&key, 1), context).front();
  if (stat.status.code() == StatusCode::kCorruption) return BadAtStore(item, "stat", stat.status);
  return TakeStat(item, stat) && TakeSize(item, stat.bytes, stat.version);
}

// Takes memory for an object of so many bytes. One of a possible size is read, also where the size
// alone does not tell how much of it is payload: the trailer does.
bool FetchJob::TakeSize(Pending& item, uint64_t object_bytes,
                        std::optional<ObjectVersion> version) {
  if (++item.wrong_sizes > kMaxWrongSizes) {
    Finish(item, FetchOutcome::kMiss);
    return false;
  }
  if (object_bytes % kBlockBytes != 0 || object_bytes < 2 * kBlockBytes) {
    return Bad(item, version,
               Status::Corruption(fmt::format("an object of {} bytes", object_bytes)));
  }
  uint64_t payload_bytes = object_bytes - kBlockBytes;
  uint64_t trailer_blocks = 1;
  const int64_t expected_tokens = items_[item.index].expected_tokens;
  if (expected_tokens >= 0) {
    const uint64_t row_bytes = specs_.front().row_bytes();
    payload_bytes = static_cast<uint64_t>(expected_tokens) * row_bytes;
    const uint64_t padded = PaddedBytes(payload_bytes);
    if (object_bytes <= padded ||
        (object_bytes - padded) / kBlockBytes > TrailerBlocks(kMaxMetadataBytes)) {
      return Bad(item, version,
                 Status::Corruption(fmt::format("an object of {} bytes where {} tokens of {} bytes "
                                                "were expected",
                                                object_bytes, expected_tokens, row_bytes)));
    }
    trailer_blocks = (object_bytes - padded) / kBlockBytes;
  }
  return Reserve(item, payload_bytes, trailer_blocks);
}

bool FetchJob::Bad(Pending& item, std::optional<ObjectVersion> version, const Status& reason) {
  // A read can go wrong on its way; only an object that is bad twice is bad.
  if (++item.bad_reads == 1) {
    cache_.CountCorruption(items_[item.index].key, reason);
    return true;
  }
  cache_.ReportBad(items_[item.index].key, version);
  Finish(item, FetchOutcome::kMiss);
  return false;
}

// A backend that keeps notes of its own beside the object found those damaged.
bool FetchJob::BadAtStore(Pending& item, const char* op, const Status& reason) {
  answered_ = true;
  cache_.Count(op, "error");
  return Bad(item, std::nullopt, reason);
}

bool FetchJob::Incompatible(const Pending& item) {
  cache_.metrics_->incompatible.Add({{"backend", std::string(cache_.store_->name())}}).Increment();
  if (const uint64_t count = cache_.incompatible_log_.Admit(cache_.clock_->Now())) {
    LOG_WARNING("store {}: objects of another format version or origin, misses: {}, last {}",
                cache_.store_->name(), count, item.key_text);
  }
  Finish(item, FetchOutcome::kMiss);
  return false;
}

const EmbeddingSpec* FetchJob::SpecOf(const Trailer& trailer) const {
  if (!by_key_) return &specs_.front();
  const auto found = std::find_if(specs_.begin(), specs_.end(), [&](const EmbeddingSpec& spec) {
    return spec.namespace_digest == trailer.info.spec.namespace_digest;
  });
  return found == specs_.end() ? nullptr : &*found;
}

bool FetchJob::Verify(Pending& item, const GetResult& result) {
  FetchItem& fetch = items_[item.index];
  const ConstBuffer last_block = ConstBuffer(item.buffers.back()).last(kBlockBytes);
  const TrailerHead head = PeekTrailer(last_block);
  if (head.verdict == TrailerVerdict::kIncompatible) return Incompatible(item);
  if (head.verdict == TrailerVerdict::kCorrupt) {
    return Bad(item, result.version, Status::Corruption("the trailer is damaged"));
  }
  if (head.blocks != item.trailer_blocks) {
    if (fetch.expected_tokens >= 0 || head.blocks * kBlockBytes >= result.bytes) {
      return Bad(item, result.version, Status::Corruption("the trailer's length is wrong"));
    }
    // The size alone did not tell: there is more metadata than one block holds.
    if (++item.wrong_sizes > kMaxWrongSizes) {
      Finish(item, FetchOutcome::kMiss);
      return false;
    }
    return Reserve(item, result.bytes - head.blocks * kBlockBytes, head.blocks);
  }
  Trailer trailer;
  const TrailerVerdict verdict = DecodeTrailer(item.buffers.back(), &trailer);
  if (verdict == TrailerVerdict::kIncompatible) return Incompatible(item);
  if (verdict != TrailerVerdict::kGood) {
    return Bad(item, result.version, Status::Corruption("the trailer's checksum is wrong"));
  }
  const EmbeddingSpec* const spec = SpecOf(trailer);
  if (spec == nullptr) {
    Finish(item, FetchOutcome::kMiss);
    return false;
  }
  Status identity = CheckIdentity(trailer, fetch.key, *spec, fetch.expected_tokens);
  if (!identity.ok()) return Bad(item, result.version, identity);
  if (cache_.has_checksums_) {
    Status intact = CheckContent(trailer, item.content, result.bytes, &item.checksum);
    if (!intact.ok()) return Bad(item, result.version, intact);
  }
  FetchResult& final = results_[item.index];
  final.spec = *spec;
  final.tokens = trailer.payload_bytes / spec->row_bytes();
  final.metadata = std::move(trailer.info.metadata);
  final.block = fetch.block;
  cache_.bad_keys_.Erase(fetch.key);  // somebody has replaced it
  Finish(item, FetchOutcome::kHit);
  return false;
}

bool FetchJob::Take(Pending& item, const GetResult& result, const CallContext& context) {
  if (result.outcome != GetOutcome::kFailed) answered_ = true;
  switch (result.outcome) {
    case GetOutcome::kHit: {
      uint64_t asked = 0;
      for (MutableBuffer buffer : item.buffers) asked += buffer.size();
      if (result.bytes != asked) {
        Fail(item, "get",
             Status::Internal(
                 fmt::format("a hit of {} bytes into buffers of {}", result.bytes, asked)));
        return false;
      }
      cache_.Count("get", "ok");
      cache_.CountBytes("get", result.bytes);
      return Verify(item, result);
    }
    case GetOutcome::kMiss:
      cache_.Count("get", "miss");
      Absent(item);
      return false;
    case GetOutcome::kWrongSize:
      cache_.Count("get", "miss");
      return TakeWrongSize(item, result, context);
    case GetOutcome::kFailed:
      if (result.status.code() == StatusCode::kCorruption) {
        return BadAtStore(item, "get", result.status);
      }
      Fail(item, "get",
           result.status.ok() ? Status::Internal("a get failed without a reason") : result.status);
      return false;
  }
  return false;
}

void FetchJob::GetRound(const CallContext& context) {
  std::vector<GetItem> gets;
  gets.reserve(pending_.size());
  for (Pending& item : pending_) {
    item.buffers = items_[item.index].block->ObjectFillBuffers(
        PaddedBytes(item.payload_bytes) + item.trailer_blocks * kBlockBytes, item.trailer_blocks);
    item.content.assign(item.buffers.begin(), item.buffers.end() - 1);
    item.checksum = {};
    gets.push_back({.key = item.key_text, .buffers = item.buffers});
  }
  const std::function<void(size_t, uint64_t)> received = [this](size_t index, uint64_t bytes) {
    Hash(pending_[index], bytes);
  };
  CallContext watched = context;
  watched.received = &received;
  const std::vector<GetResult> results = cache_.CallStore<GetResult>(
      "get", gets.size(), [&] { return cache_.store_->BatchGetIntoMultiBuffers(gets, watched); });
  size_t next = 0;
  std::erase_if(pending_, [&](Pending& item) { return !Take(item, results[next++], context); });
}

// Which of the last block before the trailer is payload, only the trailer tells.
void FetchJob::Hash(Pending& item, uint64_t received_bytes) {
  const uint64_t content_bytes = PaddedBytes(item.payload_bytes);
  const uint64_t certain_bytes = content_bytes - std::min(content_bytes, kBlockBytes);
  item.checksum.ExtendTo(item.content, std::min(received_bytes, certain_bytes));
}

Status FetchJob::Run(const CallContext& context) {
  while (!pending_.empty()) {
    if (context.cancelled != nullptr && context.cancelled->load()) {
      return Status::Cancelled("nobody waits any more");
    }
    if (!StatUnknown(context)) GetRound(context);
  }
  return answered_ ? Status::Ok() : failure_;
}

}  // namespace embercache
