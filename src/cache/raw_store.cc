#include "src/cache/raw_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/cache/envelope.h"
#include "src/memory/page_pool.h"
#include "src/store/store_call.h"

namespace embercache {
namespace {

constexpr size_t kNamesAGeneration = 65536;

// The first `bytes` bytes of `buffers`.
template <typename Buffer>
std::vector<Buffer> Head(std::span<const Buffer> buffers, uint64_t bytes) {
  std::vector<Buffer> head;
  for (const Buffer& buffer : buffers) {
    if (bytes == 0) break;
    const uint64_t taken = std::min<uint64_t>(bytes, buffer.size());
    head.push_back(buffer.first(taken));
    bytes -= taken;
  }
  return head;
}

Status Unknown(std::string_view key) {
  return Status::Unimplemented(
      fmt::format("the hash of key {} is not known, and a store in raw format needs it", key));
}

// Padding and trailer, as if the object had been stored with them, but for the payload's checksum.
// REQUIRES: the last buffer is the trailer's, and the padding lies in the one before.
void MakeEnvelope(const EmbeddingInfo& info, std::span<const MutableBuffer> buffers) {
  Trailer trailer;
  trailer.info = info;
  trailer.payload_bytes = info.payload_bytes();
  const uint64_t padding = PaddedBytes(trailer.payload_bytes) - trailer.payload_bytes;
  std::memset(buffers[buffers.size() - 2].last(padding).data(), 0, padding);
  EncodeTrailer(trailer, buffers.back());
}

// One call for the items whose names are known; the others' results say that they are not.
template <typename ResultType, typename Item>
struct Batch {
  explicit Batch(size_t count) : results(count) {}

  void Add(size_t index, Item item) {
    indices.push_back(index);
    items.push_back(std::move(item));
  }
  void Spread(std::vector<ResultType> answers) {
    answers.resize(items.size());
    for (size_t n = 0; n < indices.size(); ++n) results[indices[n]] = std::move(answers[n]);
  }

  std::vector<ResultType> results;
  std::vector<size_t> indices;
  std::vector<Item> items;
};

}  // namespace

void RawStore::Remember(const EmbeddingKey& key, std::string_view hash, const EmbeddingSpec& spec,
                        uint64_t tokens) {
  const std::string payload_key = payloads_->GetKey(hash);
  MutexLock lock(mutex_);
  const std::string text = key.Text();
  // Who does not know the size must not take it from a fetch under way.
  if (tokens == 0 && recent_.contains(text)) return;
  if (recent_.size() >= kNamesAGeneration) older_ = std::exchange(recent_, {});
  const auto older = older_.find(text);
  if (tokens == 0 && older != older_.end()) {
    recent_.insert_or_assign(text, older->second);
  } else {
    recent_.insert_or_assign(text, Name{key, payload_key, spec, tokens});
  }
}

bool RawStore::Find(std::string_view key, Name* name) const {
  MutexLock lock(mutex_);
  const std::string text(key);
  for (const Names* names : {&recent_, &older_}) {
    if (const auto it = names->find(text); it != names->end()) {
      *name = it->second;
      return true;
    }
  }
  return false;
}

std::vector<StatResult> RawStore::BatchIsExist(std::span<const std::string_view> keys,
                                               const CallContext& context) {
  Batch<StatResult, std::string_view> batch(keys.size());
  std::vector<Name> names(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (Find(keys[i], &names[i])) {
      batch.Add(i, names[i].payload_key);
    } else {
      batch.results[i].status = Unknown(keys[i]);
    }
  }
  if (!batch.items.empty()) batch.Spread(payloads_->BatchIsExist(batch.items, context));
  return std::move(batch.results);
}

std::vector<StatResult> RawStore::BatchStat(std::span<const std::string_view> keys,
                                            const CallContext&) {
  std::vector<StatResult> results(keys.size());
  for (StatResult& result : results) {
    result.status = Status::Unimplemented("the size of a raw object is that of no envelope");
  }
  return results;
}

std::vector<GetResult> RawStore::BatchGetIntoMultiBuffers(std::span<const GetItem> items,
                                                          const CallContext& context) {
  Batch<GetResult, GetItem> batch(items.size());
  std::vector<Name> names(items.size());
  std::vector<std::vector<MutableBuffer>> payloads(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    Name& name = names[i];
    if (!Find(items[i].key, &name) || name.tokens == 0) {
      batch.results[i].status = Unknown(items[i].key);
      continue;
    }
    const uint64_t payload_bytes = name.tokens * name.spec.row_bytes();
    if (TotalBytes(items[i].buffers) != ObjectBytes(payload_bytes, 0)) {
      batch.results[i].outcome = GetOutcome::kMiss;
      continue;
    }
    payloads[i] = Head(items[i].buffers, payload_bytes);
    batch.Add(i, {.key = name.payload_key, .buffers = payloads[i]});
  }
  // What has come of a payload says nothing of the items that were asked for.
  const CallContext limits{.deadline = context.deadline, .cancelled = context.cancelled};
  if (!batch.items.empty()) batch.Spread(payloads_->BatchGetIntoMultiBuffers(batch.items, limits));
  for (const size_t i : batch.indices) {
    GetResult& result = batch.results[i];
    // An object of another length is another embedding.
    if (result.outcome == GetOutcome::kWrongSize) result.outcome = GetOutcome::kMiss;
    if (result.outcome != GetOutcome::kHit) continue;
    const EmbeddingInfo info{.key = names[i].key, .spec = names[i].spec, .tokens = names[i].tokens};
    MakeEnvelope(info, items[i].buffers);
    result.bytes = ObjectBytes(info.payload_bytes(), 0);
  }
  return std::move(batch.results);
}

std::vector<PutResult> RawStore::BatchPutFromMultiBuffers(std::span<const PutItem> items,
                                                          const CallContext& context) {
  Batch<PutResult, PutItem> batch(items.size());
  std::vector<Name> names(items.size());
  std::vector<std::vector<ConstBuffer>> payloads(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    Trailer trailer;
    if (!Find(items[i].key, &names[i])) {
      batch.results[i].status = Unknown(items[i].key);
    } else if (DecodeTrailer(items[i].buffers.back(), &trailer) != TrailerVerdict::kGood) {
      batch.results[i].status = Status::Internal("an embedding without a trailer");
    } else {
      payloads[i] = Head(items[i].buffers, trailer.payload_bytes);
      batch.Add(i, {.key = names[i].payload_key, .buffers = payloads[i], .mode = items[i].mode});
    }
  }
  if (!batch.items.empty()) batch.Spread(payloads_->BatchPutFromMultiBuffers(batch.items, context));
  return std::move(batch.results);
}

std::vector<RemoveResult> RawStore::BatchRemove(std::span<const RemoveItem> items,
                                                const CallContext& context) {
  Batch<RemoveResult, RemoveItem> batch(items.size());
  std::vector<Name> names(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    if (Find(items[i].key, &names[i])) {
      batch.Add(i, {.key = names[i].payload_key, .version = items[i].version});
    } else {
      batch.results[i].status = Unknown(items[i].key);
    }
  }
  if (!batch.items.empty()) batch.Spread(payloads_->BatchRemove(batch.items, context));
  return std::move(batch.results);
}

}  // namespace embercache
