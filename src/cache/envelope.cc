#include "src/cache/envelope.h"

#include <fmt/format.h>
#include <xxhash.h>
#if defined(__x86_64__)
// After xxhash.h: replaces its functions by ones that choose AVX2 or AVX-512 at run time.
#include <xxh_x86dispatch.h>
#endif

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "src/memory/page_pool.h"

// All numbers are little-endian. Offsets in the last block of the trailer:
//    0  magic "EMBRCACH"            8  format version, u16       10  flags, u16 (bit 0: shape
//    unknown)
//   12  trailer blocks, u32        16  namespace digest, 32      48  key, 32
//   80  dtype, u8   81 modality, u8   82 zero, 2   84 hidden, u32   88  tokens, u64
//   96  payload bytes, u64        104  payload XXH3-128, high, low, u64 each
//  120  created, ms, u64          128  reserved for a keyed MAC, 32   160  metadata bytes, u32
//  164  zeros                    1008  XXH3-128 of the trailer's blocks with these 16 bytes zero
// 1024  metadata up to 3072 bytes; longer metadata fills the blocks before instead.

namespace embercache {
namespace {

constexpr char kMagic[8] = {'E', 'M', 'B', 'R', 'C', 'A', 'C', 'H'};
constexpr uint16_t kFormatVersion = 1;
constexpr uint16_t kFlagShapeUnknown = 1;
constexpr size_t kInlineMetadataOffset = 1024;
constexpr uint64_t kInlineMetadataBytes = 3072;
constexpr size_t kOwnChecksumOffset = 1008;

template <typename T>
void Put(std::byte* block, size_t offset, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    block[offset + i] = static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i));
  }
}

template <typename T>
T Take(const std::byte* block, size_t offset) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= std::to_integer<uint64_t>(block[offset + i]) << (8 * i);
  }
  return static_cast<T>(value);
}

class Xxh3 {
 public:
  Xxh3() : state_(XXH3_createState(), &XXH3_freeState) {
    assert(state_ != nullptr);
    Reset();
  }
  void Reset() { XXH3_128bits_reset(state_.get()); }
  void Update(ConstBuffer data) { XXH3_128bits_update(state_.get(), data.data(), data.size()); }
  PayloadChecksum Finish() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return {hash.high64, hash.low64};
  }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

// Over all blocks, the field that holds the result counted as zeros.
PayloadChecksum OwnChecksum(ConstBuffer blocks) {
  constexpr std::byte kZeros[16] = {};
  const size_t field = blocks.size() - kBlockBytes + kOwnChecksumOffset;
  Xxh3 hash;
  hash.Update(blocks.first(field));
  hash.Update(kZeros);
  hash.Update(blocks.subspan(field + sizeof kZeros));
  return hash.Finish();
}

}  // namespace

PayloadChecksum ChecksumOf(std::span<const ConstBuffer> buffers) {
  if (buffers.size() == 1) {
    const XXH128_hash_t hash = XXH3_128bits(buffers[0].data(), buffers[0].size());
    return {hash.high64, hash.low64};
  }
  Xxh3 hash;
  for (ConstBuffer buffer : buffers) hash.Update(buffer);
  return hash.Finish();
}

class RunningChecksum::Hash : public Xxh3 {};

RunningChecksum::RunningChecksum() : hash_(std::make_unique<Hash>()) {}
RunningChecksum::RunningChecksum(RunningChecksum&&) noexcept = default;
RunningChecksum& RunningChecksum::operator=(RunningChecksum&&) noexcept = default;
RunningChecksum::~RunningChecksum() = default;

void RunningChecksum::ExtendTo(std::span<const ConstBuffer> buffers, uint64_t bytes) {
  if (bytes < bytes_) {
    hash_->Reset();
    bytes_ = 0;
  }
  uint64_t start = 0;  // of the buffer
  for (ConstBuffer buffer : buffers) {
    const uint64_t end = std::min<uint64_t>(start + buffer.size(), bytes);
    if (end > bytes_) {
      hash_->Update(buffer.subspan(bytes_ - start, end - bytes_));
      bytes_ = end;
    }
    start += buffer.size();
    if (start >= bytes) return;
  }
}

PayloadChecksum RunningChecksum::Finish() const {
  return hash_->Finish();
}

uint64_t WallMs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

uint64_t TrailerBlocks(uint64_t metadata_bytes) {
  if (metadata_bytes <= kInlineMetadataBytes) return 1;
  return 1 + (metadata_bytes + kBlockBytes - 1) / kBlockBytes;
}

uint64_t PaddedBytes(uint64_t payload_bytes) {
  return (payload_bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

uint64_t ObjectBytes(uint64_t payload_bytes, uint64_t metadata_bytes) {
  return PaddedBytes(payload_bytes) + TrailerBlocks(metadata_bytes) * kBlockBytes;
}

void EncodeTrailer(const Trailer& trailer, MutableBuffer blocks) {
  const std::string& metadata = trailer.info.metadata;
  assert(blocks.size() == TrailerBlocks(metadata.size()) * kBlockBytes);
  std::memset(blocks.data(), 0, blocks.size());
  std::byte* const last = blocks.data() + blocks.size() - kBlockBytes;
  const EmbeddingSpec& spec = trailer.info.spec;
  std::memcpy(last, kMagic, sizeof kMagic);
  Put<uint16_t>(last, 8, kFormatVersion);
  Put<uint16_t>(last, 10, trailer.shape_unknown ? kFlagShapeUnknown : uint16_t{0});
  Put<uint32_t>(last, 12, static_cast<uint32_t>(blocks.size() / kBlockBytes));
  std::memcpy(last + 16, spec.namespace_digest.bytes.data(), 32);
  std::memcpy(last + 48, trailer.info.key.digest.bytes.data(), 32);
  if (!trailer.shape_unknown) {
    Put<uint8_t>(last, 80, static_cast<uint8_t>(spec.dtype));
    Put<uint8_t>(last, 81, static_cast<uint8_t>(spec.modality));
    Put<uint32_t>(last, 84, spec.hidden);
    Put<uint64_t>(last, 88, trailer.info.tokens);
  }
  Put<uint64_t>(last, 96, trailer.payload_bytes);
  Put<uint64_t>(last, 104, trailer.checksum.high);
  Put<uint64_t>(last, 112, trailer.checksum.low);
  Put<uint64_t>(last, 120, trailer.created_ms);
  Put<uint32_t>(last, 160, static_cast<uint32_t>(metadata.size()));
  std::byte* const place =
      metadata.size() <= kInlineMetadataBytes ? last + kInlineMetadataOffset : blocks.data();
  std::memcpy(place, metadata.data(), metadata.size());
  const PayloadChecksum own = OwnChecksum(blocks);
  Put<uint64_t>(last, kOwnChecksumOffset, own.high);
  Put<uint64_t>(last, kOwnChecksumOffset + 8, own.low);
}

TrailerHead PeekTrailer(ConstBuffer last_block) {
  assert(last_block.size() == kBlockBytes);
  const std::byte* const last = last_block.data();
  // Zeros are nobody's format: what was here has been lost, or was never written.
  const bool lost = std::all_of(last_block.begin(), last_block.end(),
                                [](std::byte byte) { return byte == std::byte{0}; });
  if (lost) return {TrailerVerdict::kCorrupt, 0};
  if (std::memcmp(last, kMagic, sizeof kMagic) != 0 || Take<uint16_t>(last, 8) != kFormatVersion) {
    return {TrailerVerdict::kIncompatible, 0};
  }
  const uint64_t blocks = Take<uint32_t>(last, 12);
  const uint64_t metadata_bytes = Take<uint32_t>(last, 160);
  if (metadata_bytes > kMaxMetadataBytes || blocks != TrailerBlocks(metadata_bytes)) {
    return {TrailerVerdict::kCorrupt, 0};
  }
  return {TrailerVerdict::kGood, blocks};
}

TrailerVerdict DecodeTrailer(ConstBuffer blocks, Trailer* trailer) {
  const ConstBuffer last_block = blocks.last(kBlockBytes);
  const TrailerHead head = PeekTrailer(last_block);
  if (head.verdict != TrailerVerdict::kGood) return head.verdict;
  assert(blocks.size() == head.blocks * kBlockBytes);
  const std::byte* const last = last_block.data();
  const PayloadChecksum own = OwnChecksum(blocks);
  if (own.high != Take<uint64_t>(last, kOwnChecksumOffset) ||
      own.low != Take<uint64_t>(last, kOwnChecksumOffset + 8)) {
    return TrailerVerdict::kCorrupt;
  }
  Trailer result;
  EmbeddingInfo& info = result.info;
  std::memcpy(info.spec.namespace_digest.bytes.data(), last + 16, 32);
  std::memcpy(info.key.digest.bytes.data(), last + 48, 32);
  result.shape_unknown = (Take<uint16_t>(last, 10) & kFlagShapeUnknown) != 0;
  if (!result.shape_unknown) {
    const auto dtype = DTypeFromNumber(Take<uint8_t>(last, 80));
    const auto modality = ModalityFromNumber(Take<uint8_t>(last, 81));
    if (!dtype || !modality) return TrailerVerdict::kIncompatible;
    info.spec.dtype = *dtype;
    info.spec.modality = *modality;
    info.spec.hidden = Take<uint32_t>(last, 84);
    info.tokens = Take<uint64_t>(last, 88);
  }
  result.payload_bytes = Take<uint64_t>(last, 96);
  result.checksum = {Take<uint64_t>(last, 104), Take<uint64_t>(last, 112)};
  result.created_ms = Take<uint64_t>(last, 120);
  const uint64_t metadata_bytes = Take<uint32_t>(last, 160);
  const std::byte* const place =
      metadata_bytes <= kInlineMetadataBytes ? last + kInlineMetadataOffset : blocks.data();
  info.metadata.assign(reinterpret_cast<const char*>(place), metadata_bytes);
  *trailer = std::move(result);
  return TrailerVerdict::kGood;
}

Status CheckIdentity(const Trailer& trailer, const EmbeddingKey& key, const EmbeddingSpec& spec,
                     int64_t expected_tokens) {
  const EmbeddingSpec& found = trailer.info.spec;
  if (trailer.info.key != key) {
    return Status::Corruption("the object is that of key " + trailer.info.key.digest.ToHex());
  }
  if (found.namespace_digest != spec.namespace_digest) {
    return Status::Corruption("the object is of namespace " + found.namespace_digest.ToHex());
  }
  if (trailer.shape_unknown) {
    if (expected_tokens >= 0 &&
        static_cast<uint64_t>(expected_tokens) * spec.row_bytes() == trailer.payload_bytes) {
      return Status::Ok();
    }
    return Status::Corruption(
        fmt::format("{} bytes of unknown shape are not the {} tokens of {} "
                    "bytes that were asked for",
                    trailer.payload_bytes, expected_tokens, spec.row_bytes()));
  }
  if (found.dtype != spec.dtype || found.hidden != spec.hidden || found.modality != spec.modality) {
    return Status::Corruption(
        fmt::format("the object is {} rows of {} × {}, not {} rows of {} × {}",
                    ModalityName(found.modality), found.hidden, DTypeName(found.dtype),
                    ModalityName(spec.modality), spec.hidden, DTypeName(spec.dtype)));
  }
  if (trailer.info.tokens == 0 || trailer.info.tokens > trailer.payload_bytes ||
      trailer.info.payload_bytes() != trailer.payload_bytes) {
    return Status::Corruption(fmt::format("{} tokens of {} bytes are not {} bytes of payload",
                                          trailer.info.tokens, spec.row_bytes(),
                                          trailer.payload_bytes));
  }
  if (expected_tokens >= 0 && trailer.info.tokens != static_cast<uint64_t>(expected_tokens)) {
    return Status::Corruption(fmt::format("the object has {} tokens, {} were expected",
                                          trailer.info.tokens, expected_tokens));
  }
  return Status::Ok();
}

Status CheckContent(const Trailer& trailer, std::span<const ConstBuffer> content,
                    uint64_t object_bytes, RunningChecksum* begun) {
  if (ObjectBytes(trailer.payload_bytes, trailer.info.metadata.size()) != object_bytes) {
    return Status::Corruption("the payload's length is wrong");
  }
  std::vector<ConstBuffer> payload;
  uint64_t left = trailer.payload_bytes;
  for (const ConstBuffer buffer : content) {
    const uint64_t part = std::min<uint64_t>(left, buffer.size());
    if (part > 0) payload.push_back(buffer.first(part));
    left -= part;
    const ConstBuffer padding = buffer.subspan(part);
    const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
    if (!std::all_of(padding.begin(), padding.end(), is_zero)) {
      return Status::Corruption("the padding is not zero");
    }
  }
  if (left > 0) return Status::Corruption("the payload's length is wrong");
  begun->ExtendTo(payload, trailer.payload_bytes);
  // What came early is looked at again before anybody is accused.
  if (begun->Finish() != trailer.checksum && ChecksumOf(payload) != trailer.checksum) {
    return Status::Corruption("the payload's checksum is wrong");
  }
  return Status::Ok();
}

}  // namespace embercache
