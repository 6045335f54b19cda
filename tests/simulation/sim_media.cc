#include "tests/simulation/sim_media.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "src/cache/envelope.h"

namespace embercache::simulation {
namespace {

constexpr uint32_t kHidden = 256;
constexpr uint64_t kRowBytes = kHidden * sizeof(uint32_t);
constexpr uint64_t kBlock = 4096;
using Row = std::array<uint32_t, kHidden>;

// All words are small numbers as F32: none is NaN or Inf.
Row RowOf(const Media& media, uint64_t index) {
  Row row;
  row[0] = 0x10000000U | media.id;
  row[1] = static_cast<uint32_t>(media.tokens);
  row[2] = static_cast<uint32_t>(index);
  uint32_t mixed = (media.id * 2654435761U) ^ (row[1] << 16) ^ row[2];
  for (size_t i = 3; i < kHidden; ++i) {
    mixed = mixed * 1664525U + 1013904223U;
    row[i] = mixed >> 2;
  }
  return row;
}

// Calls `visit(bytes, offset in the row, row)` for the pieces of rows that the buffers hold.
template <typename Buffer, typename Visit>
void EachPiece(std::span<const Buffer> buffers, uint64_t total_bytes, Visit visit) {
  uint64_t position = 0;
  for (const Buffer& buffer : buffers) {
    for (uint64_t at = 0; at < buffer.size() && position < total_bytes;) {
      const uint64_t offset = position % kRowBytes;
      const uint64_t bytes = std::min<uint64_t>(kRowBytes - offset, buffer.size() - at);
      visit(buffer.subspan(at, bytes), offset, position / kRowBytes);
      at += bytes;
      position += bytes;
    }
  }
}

}  // namespace

const EmbeddingSpec& SimSpec() {
  static const EmbeddingSpec spec{
      .namespace_digest = NamespaceDigest({.model_id = "simulated", .dtype = DType::kF32}),
      .modality = Modality::kImage,
      .dtype = DType::kF32,
      .hidden = kHidden};
  return spec;
}

uint64_t Media::payload_bytes() const {
  return tokens * kRowBytes;
}

std::vector<Media> MakeMedia(uint32_t count) {
  std::vector<Media> all(count);
  for (uint32_t id = 0; id < count; ++id) {
    Media& media = all[id];
    media.id = id;
    media.key = EmbeddingKey::FromCallerHash(SimSpec().namespace_digest, fmt::format("{}", id));
    media.tokens = id % 12 == 7 ? 257 + 13 * id : 1 + id % 9;
    media.metadata = fmt::format(R"({{"id":{},"pad":"{}"}})", id,
                                 std::string(id % 7 == 3 ? 1500 * (id % 5) : 0, 'x'));
  }
  return all;
}

const Media* FindMedia(std::span<const Media> all, std::string_view key_text) {
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Media& media) { return media.key.Text() == key_text; });
  return found == all.end() ? nullptr : &*found;
}

void FillRows(const Media& media, uint64_t first, uint64_t end,
              std::span<const MutableBuffer> buffers) {
  EachPiece(buffers, media.payload_bytes(), [&](MutableBuffer bytes, uint64_t offset, uint64_t i) {
    if (i < first || i >= end) return;
    const Row row = RowOf(media, i);
    std::memcpy(bytes.data(), reinterpret_cast<const std::byte*>(row.data()) + offset,
                bytes.size());
  });
}

std::string CheckRows(const Media& media, std::span<const ConstBuffer> buffers) {
  uint64_t total = 0;
  for (const ConstBuffer& buffer : buffers) total += buffer.size();
  if (total != media.payload_bytes()) {
    return fmt::format("item {}: {} bytes instead of {}", media.id, total, media.payload_bytes());
  }
  std::string problem;
  EachPiece(buffers, total, [&](ConstBuffer bytes, uint64_t offset, uint64_t i) {
    const Row row = RowOf(media, i);
    const std::byte* const right = reinterpret_cast<const std::byte*>(row.data()) + offset;
    if (!problem.empty() || std::memcmp(bytes.data(), right, bytes.size()) == 0) return;
    problem = fmt::format("item {}: row {} of {} is wrong", media.id, i, media.tokens);
    if (offset != 0 || bytes.size() < 3 * sizeof(uint32_t)) return;
    std::array<uint32_t, 3> head;
    std::memcpy(head.data(), bytes.data(), sizeof head);
    if (head[0] >> 28 != 1) return;
    problem += fmt::format("; it begins as row {} of {} of item {} would", head[2], head[1],
                           head[0] & 0xfffffffU);
  });
  return problem;
}

std::string CheckPin(const Media& media, const Pin& pin) {
  const EmbeddingInfo& info = pin.info();
  if (info.key != media.key || !(info.spec == SimSpec()) || info.tokens != media.tokens ||
      info.metadata != media.metadata) {
    return fmt::format("item {}: the pin is of {} rows with {} bytes of metadata", media.id,
                       info.tokens, info.metadata.size());
  }
  return CheckRows(media, pin.buffers());
}

std::string CheckObject(const Media& media, std::span<const std::byte> object) {
  const uint64_t blocks = TrailerBlocks(media.metadata.size());
  if (object.size() != ObjectBytes(media.payload_bytes(), media.metadata.size())) {
    return fmt::format("item {}: an object of {} bytes", media.id, object.size());
  }
  const TrailerHead head = PeekTrailer(object.last(kBlock));
  if (head.verdict != TrailerVerdict::kGood || head.blocks != blocks) {
    return fmt::format("item {}: no good last block", media.id);
  }
  Trailer trailer;
  if (DecodeTrailer(object.last(blocks * kBlock), &trailer) != TrailerVerdict::kGood) {
    return fmt::format("item {}: no good trailer", media.id);
  }
  const ConstBuffer payload = object.first(media.payload_bytes());
  if (trailer.info.key != media.key || trailer.info.tokens != media.tokens ||
      trailer.info.metadata != media.metadata ||
      trailer.checksum != ChecksumOf(std::span(&payload, 1))) {
    return fmt::format("item {}: the trailer is not its", media.id);
  }
  return CheckRows(media, std::span(&payload, 1));
}

}  // namespace embercache::simulation
