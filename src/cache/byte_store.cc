#include "src/cache/byte_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "embercache/key.h"
#include "src/base/log.h"
#include "src/cache/envelope.h"
#include "src/memory/page_pool.h"
#include "src/store/raw_format.h"
#include "src/store/store_call.h"

// Invariant: nothing is a hit but what Verify has checked in full, where there are envelopes.

namespace embercache {
namespace {

// Shared by all puts; never written.
constexpr std::array<std::byte, kBlockBytes> kZeros{};

}  // namespace

// One item of a Get, with the memory for what the caller does not see.
struct ByteStore::Read {
  size_t index = 0;
  EmbeddingKey key;
  std::string key_text;
  const ByteGetItem* item = nullptr;
  uint64_t payload_bytes = 0;
  std::vector<std::byte> tail;  // padding and trailer
  uint64_t padding_bytes = 0;
  std::vector<MutableBuffer> buffers;
  GetResult result;

  void SetTrailerBlocks(uint64_t blocks) {
    tail.assign(padding_bytes + blocks * kBlockBytes, std::byte{0});
    buffers = item->buffers;
    buffers.emplace_back(tail);
  }
  ConstBuffer trailer() const { return ConstBuffer(tail).subspan(padding_bytes); }
};

ByteStore::ByteStore(std::shared_ptr<EmbeddingStore> store, const Digest256& namespace_digest)
    : store_(std::move(store)), raw_(IsRaw(*store_)), namespace_digest_(namespace_digest) {}

std::string ByteStore::KeyText(const std::string& hash) const {
  if (raw_) return store_->GetKey(hash);
  return EmbeddingKey::FromCallerHash(namespace_digest_, hash).Text();
}

std::vector<GetOutcome> ByteStore::GetRaw(std::span<const ByteGetItem> items,
                                          const CallContext& context) {
  std::vector<std::string> keys;
  for (const ByteGetItem& item : items) keys.push_back(KeyText(item.hash));
  std::vector<GetItem> gets;
  for (size_t i = 0; i < items.size(); ++i) gets.push_back({keys[i], items[i].buffers});
  std::vector<GetResult> results = store_->BatchGetIntoMultiBuffers(gets, context);
  results.resize(items.size());
  std::vector<GetOutcome> outcomes;
  for (const GetResult& result : results) outcomes.push_back(result.outcome);
  return outcomes;
}

std::vector<PutResult> ByteStore::PutRaw(std::span<const BytePutItem> items,
                                         const CallContext& context) {
  std::vector<std::string> keys;
  for (const BytePutItem& item : items) keys.push_back(KeyText(item.hash));
  std::vector<PutItem> puts;
  for (size_t i = 0; i < items.size(); ++i) puts.push_back({keys[i], items[i].buffers});
  std::vector<PutResult> results = store_->BatchPutFromMultiBuffers(puts, context);
  results.resize(items.size());
  return results;
}

void ByteStore::ReadBatch(std::vector<Read>& reads, const CallContext& context) {
  std::vector<GetItem> items;
  for (const Read& read : reads) items.push_back({.key = read.key_text, .buffers = read.buffers});
  std::vector<GetResult> results = store_->BatchGetIntoMultiBuffers(items, context);
  results.resize(reads.size());
  for (size_t i = 0; i < reads.size(); ++i) reads[i].result = std::move(results[i]);
}

// Corruption: the object is damaged. Other codes: it is whole, and not what was asked for.
Status ByteStore::Verify(const Read& read) const {
  const TrailerHead head = PeekTrailer(read.trailer().last(kBlockBytes));
  if (head.verdict == TrailerVerdict::kIncompatible) {
    return Status::Unimplemented("it has another format version or origin");
  }
  if (head.verdict == TrailerVerdict::kCorrupt) return Status::Corruption("its trailer is damaged");
  if (head.blocks * kBlockBytes != read.trailer().size()) {
    return Status::Invalid("it is of another size");
  }
  Trailer trailer;
  if (DecodeTrailer(read.trailer(), &trailer) != TrailerVerdict::kGood) {
    return Status::Corruption("its trailer's checksum is wrong");
  }
  if (trailer.info.key != read.key || trailer.info.spec.namespace_digest != namespace_digest_ ||
      trailer.payload_bytes != read.payload_bytes) {
    return Status::Invalid("it is another embedding, or of another size");
  }
  const ConstBuffer padding = ConstBuffer(read.tail).first(read.padding_bytes);
  if (std::any_of(padding.begin(), padding.end(), [](std::byte b) { return b != std::byte{0}; })) {
    return Status::Corruption("its padding is not zero");
  }
  const std::vector<ConstBuffer> payload(read.item->buffers.begin(), read.item->buffers.end());
  if (ChecksumOf(payload) != trailer.checksum) {
    return Status::Corruption("its payload's checksum is wrong");
  }
  return Status::Ok();
}

std::vector<GetOutcome> ByteStore::Get(std::span<const ByteGetItem> items,
                                       const CallContext& context) {
  if (raw_) return GetRaw(items, context);
  std::vector<GetOutcome> outcomes(items.size(), GetOutcome::kMiss);
  std::vector<Read> reads;
  for (size_t i = 0; i < items.size(); ++i) {
    Read read{.index = i,
              .key = EmbeddingKey::FromCallerHash(namespace_digest_, items[i].hash),
              .item = &items[i],
              .payload_bytes = TotalBytes(items[i].buffers)};
    if (read.payload_bytes == 0) continue;
    read.key_text = read.key.Text();
    read.padding_bytes = PaddedBytes(read.payload_bytes) - read.payload_bytes;
    read.SetTrailerBlocks(1);
    reads.push_back(std::move(read));
  }
  // A second round for what has more metadata than one block, and for what did not verify.
  for (int round = 0; round < 2 && !reads.empty(); ++round) {
    ReadBatch(reads, context);
    std::erase_if(reads, [&](Read& read) {
      if (read.result.outcome == GetOutcome::kWrongSize && read.result.bytes != 0) {
        const uint64_t padded = read.payload_bytes + read.padding_bytes;
        const uint64_t extra = read.result.bytes > padded ? read.result.bytes - padded : 0;
        const bool possible = extra > kBlockBytes && extra % kBlockBytes == 0 &&
                              extra / kBlockBytes <= TrailerBlocks(kMaxMetadataBytes);
        outcomes[read.index] = GetOutcome::kWrongSize;
        if (possible) read.SetTrailerBlocks(extra / kBlockBytes);
        return !possible;
      }
      outcomes[read.index] = read.result.outcome;
      if (read.result.outcome != GetOutcome::kHit) return true;
      const Status verified = Verify(read);
      if (verified.ok()) return true;
      LOG_WARNING("store {}: {} is not used: {}", store_->name(), read.key_text,
                  verified.message());
      outcomes[read.index] = GetOutcome::kMiss;
      return verified.code() != StatusCode::kCorruption;
    });
  }
  for (const Read& read : reads) {
    if (read.result.outcome != GetOutcome::kHit || !read.result.version) continue;
    const RemoveItem bad{.key = read.key_text, .version = read.result.version};
    (void)store_->BatchRemove(std::span(&bad, 1), context);
  }
  return outcomes;
}

std::vector<PutResult> ByteStore::Put(std::span<const BytePutItem> items,
                                      const CallContext& context) {
  if (raw_) return PutRaw(items, context);
  std::vector<PutResult> results(items.size());
  std::vector<std::string> keys(items.size());
  std::vector<std::vector<std::byte>> trailers(items.size());
  std::vector<std::vector<ConstBuffer>> buffers(items.size());
  std::vector<PutItem> puts;
  std::vector<size_t> indices;
  for (size_t i = 0; i < items.size(); ++i) {
    const uint64_t payload_bytes = TotalBytes(items[i].buffers);
    if (payload_bytes == 0) {
      results[i].status = Status::Invalid(fmt::format("item {}: it has no bytes", i));
      continue;
    }
    Trailer trailer;
    trailer.info.key = EmbeddingKey::FromCallerHash(namespace_digest_, items[i].hash);
    trailer.info.spec.namespace_digest = namespace_digest_;
    trailer.payload_bytes = payload_bytes;
    trailer.checksum = ChecksumOf(items[i].buffers);
    trailer.created_ms = WallMs();
    trailer.shape_unknown = true;
    trailers[i].resize(kBlockBytes);
    EncodeTrailer(trailer, trailers[i]);
    keys[i] = trailer.info.key.Text();
    buffers[i] = items[i].buffers;
    const uint64_t padding_bytes = PaddedBytes(payload_bytes) - payload_bytes;
    if (padding_bytes > 0) buffers[i].push_back(ConstBuffer(kZeros).first(padding_bytes));
    buffers[i].emplace_back(trailers[i]);
    puts.push_back({.key = keys[i], .buffers = buffers[i]});
    indices.push_back(i);
  }
  if (puts.empty()) return results;
  std::vector<PutResult> answers = store_->BatchPutFromMultiBuffers(puts, context);
  answers.resize(puts.size());
  for (size_t n = 0; n < indices.size(); ++n) results[indices[n]] = std::move(answers[n]);
  return results;
}

std::vector<bool> ByteStore::Exist(std::span<const std::string> hashes,
                                   const CallContext& context) {
  std::vector<std::string> keys;
  for (const std::string& hash : hashes) keys.push_back(KeyText(hash));
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  std::vector<bool> found(hashes.size());
  if (views.empty()) return found;
  const std::vector<StatResult> results = store_->BatchIsExist(views, context);
  for (size_t i = 0; i < std::min(found.size(), results.size()); ++i) {
    found[i] = results[i].status.ok() && results[i].found;
  }
  return found;
}

}  // namespace embercache
