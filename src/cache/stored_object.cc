#include "src/cache/stored_object.h"

#include <fmt/format.h>

#include "embercache/key.h"
#include "src/memory/page_pool.h"

namespace embercache {
namespace {

// The object may be replaced between the question for its size and the read.
constexpr int kMaxReads = 3;

std::optional<EmbeddingKey> KeyOf(std::string_view id) {
  constexpr std::string_view kPrefix = "emb_";
  if (!id.starts_with(kPrefix)) return std::nullopt;
  const auto digest = Digest256::FromHex(id.substr(kPrefix.size()));
  if (!digest) return std::nullopt;
  return EmbeddingKey{*digest};
}

// Reads the bytes; kGood says no more than that they are here.
StoredObject ReadBytes(EmbeddingStore& store, std::string_view id, const CallContext& context,
                       ObjectMemory* memory, MutableBuffer* bytes) {
  StoredObject object;
  for (int read = 0; read < kMaxReads; ++read) {
    const StatResult stat = store.BatchStat({&id, 1}, context).at(0);
    object.status = stat.status;
    if (!stat.status.ok()) return object;
    object.state = stat.found ? ObjectState::kGood : ObjectState::kAbsent;
    if (!stat.found) return object;
    Result<MutableBuffer> buffer = memory->Take(stat.bytes);
    GetResult get;
    if (buffer.ok()) get = store.BatchGet({&id, 1}, {&*buffer, 1}, context).at(0);
    if (get.outcome == GetOutcome::kHit) {
      object.object_bytes = stat.bytes;
      object.version = get.version;
      *bytes = *buffer;
      return object;
    }
    object.state = ObjectState::kFailed;
    object.status = buffer.ok() ? get.status : buffer.status();
    if (get.outcome == GetOutcome::kFailed) return object;
  }
  object.status = Status::Unavailable("it changes faster than it can be read");
  return object;
}

Status Check(const Trailer& trailer, const std::optional<EmbeddingKey>& key, ConstBuffer content,
             uint64_t object_bytes) {
  if (key && trailer.shape_unknown && trailer.info.key != *key) {
    return Status::Corruption("the object is that of key " + trailer.info.key.digest.ToHex());
  }
  if (!trailer.shape_unknown) {
    EMBERCACHE_RETURN_IF_ERROR(
        CheckIdentity(trailer, key.value_or(trailer.info.key), trailer.info.spec, -1));
  }
  RunningChecksum checksum;
  return CheckContent(trailer, {&content, 1}, object_bytes, &checksum);
}

}  // namespace

Result<MutableBuffer> ObjectMemory::Take(uint64_t bytes) {
  if (bytes > capacity_) {
    const uint64_t capacity = PaddedBytes(bytes);
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, capacity)));
    capacity_ = data_ ? capacity : 0;
    if (!data_) {
      return Status::ResourceExhausted(fmt::format("no memory for an object of {} bytes", bytes));
    }
  }
  return MutableBuffer(data_.get(), bytes);
}

StoredObject ReadStoredObject(EmbeddingStore& store, std::string_view id,
                              const CallContext& context, ObjectMemory* memory) {
  MutableBuffer bytes;
  StoredObject object = ReadBytes(store, id, context, memory, &bytes);
  if (object.state != ObjectState::kGood) return object;
  const auto key = KeyOf(id);
  const auto bad = [&](ObjectState state, Status reason) {
    object.state = state;
    object.status = std::move(reason);
    return std::move(object);
  };
  const bool possible = bytes.size() % kBlockBytes == 0 && bytes.size() >= 2 * kBlockBytes;
  if (!possible) {
    // What is stored under other texts than keys was not written by this program.
    return bad(key ? ObjectState::kCorrupt : ObjectState::kForeign,
               Status::Corruption(fmt::format("an object of {} bytes", bytes.size())));
  }
  const TrailerHead head = PeekTrailer(bytes.last(kBlockBytes));
  if (head.verdict == TrailerVerdict::kIncompatible) {
    return bad(ObjectState::kForeign, Status::Corruption("another format version or origin"));
  }
  if (head.verdict == TrailerVerdict::kCorrupt || head.blocks * kBlockBytes >= bytes.size()) {
    return bad(ObjectState::kCorrupt, Status::Corruption("the trailer is damaged"));
  }
  const uint64_t content_bytes = bytes.size() - head.blocks * kBlockBytes;
  if (DecodeTrailer(bytes.subspan(content_bytes), &object.trailer) != TrailerVerdict::kGood) {
    return bad(ObjectState::kCorrupt, Status::Corruption("the trailer's checksum is wrong"));
  }
  Status status = Check(object.trailer, key, bytes.first(content_bytes), bytes.size());
  if (!status.ok()) return bad(ObjectState::kCorrupt, std::move(status));
  object.payload = bytes.first(object.trailer.payload_bytes);
  return object;
}

}  // namespace embercache
