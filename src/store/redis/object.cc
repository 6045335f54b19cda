#include "src/store/redis/object.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <random>

namespace embercache::redis {
namespace {

constexpr std::string_view kMagic = "EMBR";
constexpr uint8_t kFormatVersion = 1;
constexpr std::string_view kHexPrefix = "hex_";
constexpr std::string_view kHexDigits = "0123456789abcdef";

template <typename Number>
void PutNumber(std::byte* at, Number number) {
  for (size_t i = 0; i < sizeof(number); ++i) {
    at[i] = static_cast<std::byte>(static_cast<uint64_t>(number) >> (8 * i) & 0xff);
  }
}

template <typename Number>
Number GetNumber(const std::byte* at) {
  uint64_t number = 0;
  for (size_t i = 0; i < sizeof(Number); ++i) number |= std::to_integer<uint64_t>(at[i]) << (8 * i);
  return static_cast<Number>(number);
}

}  // namespace

// Offset: 0 magic, 4 format version, 5 kind, 6 zero, 8 key check, 16 generation, 32 object bytes,
// 40 chunk index, 44 zero. Numbers are little-endian.
std::array<std::byte, kHeadBytes> Head::Encode() const {
  std::array<std::byte, kHeadBytes> bytes{};
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  PutNumber(&bytes[4], kFormatVersion);
  PutNumber(&bytes[5], static_cast<uint8_t>(kind));
  PutNumber(&bytes[8], key_check);
  PutNumber(&bytes[16], generation.low);
  PutNumber(&bytes[24], generation.high);
  PutNumber(&bytes[32], object_bytes);
  PutNumber(&bytes[40], chunk_index);
  return bytes;
}

Result<Head> Head::Decode(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeadBytes || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return Status::Corruption("the value was not written by EmberCache");
  }
  const auto version = GetNumber<uint8_t>(&bytes[4]);
  if (version != kFormatVersion) {
    return Status::Unimplemented(
        fmt::format("the value has format {}; this build reads {}", version, kFormatVersion));
  }
  Head head;
  const auto kind = GetNumber<uint8_t>(&bytes[5]);
  head.kind = static_cast<HeadKind>(kind);
  head.key_check = GetNumber<uint64_t>(&bytes[8]);
  head.generation = {GetNumber<uint64_t>(&bytes[24]), GetNumber<uint64_t>(&bytes[16])};
  head.object_bytes = GetNumber<uint64_t>(&bytes[32]);
  head.chunk_index = GetNumber<uint32_t>(&bytes[40]);
  const bool chunked = head.object_bytes > kMaxWholeBytes;
  const bool valid =
      kind >= 1 && kind <= 3 && chunked == (head.kind != HeadKind::kWhole) &&
      head.object_bytes <= kMaxObjectBytes &&
      (head.kind == HeadKind::kChunk ? head.chunk_index < ChunkCount(head.object_bytes)
                                     : head.chunk_index == 0);
  if (!valid) return Status::Corruption("the value's head contradicts itself");
  return head;
}

uint64_t KeyCheck(std::string_view key) {
  return XXH3_64bits(key.data(), key.size());
}

ObjectVersion NewGeneration() {
  ObjectVersion generation;
  if (getrandom(&generation, sizeof(generation), 0) == sizeof(generation)) return generation;
  std::random_device device;
  for (uint64_t* const half : {&generation.high, &generation.low}) {
    *half = static_cast<uint64_t>(device()) << 32 | device();
  }
  return generation;
}

std::string RedisKey(std::string_view key) {
  if (key.find_first_of("{}") == key.npos && !key.starts_with(kHexPrefix)) return std::string(key);
  std::string hex(kHexPrefix);
  for (const char c : key) {
    hex += kHexDigits[static_cast<uint8_t>(c) >> 4];
    hex += kHexDigits[static_cast<uint8_t>(c) & 15];
  }
  return hex;
}

std::optional<std::string> KeyOfRedisKey(std::string_view redis_key) {
  std::string key(redis_key);
  if (redis_key.starts_with(kHexPrefix)) {
    const std::string_view hex = redis_key.substr(kHexPrefix.size());
    key.clear();
    for (size_t i = 0; i + 1 < hex.size(); i += 2) {
      const size_t high = kHexDigits.find(hex[i]), low = kHexDigits.find(hex[i + 1]);
      if (high == hex.npos || low == hex.npos) return std::nullopt;
      key += static_cast<char>(high << 4 | low);
    }
  }
  const bool ours = !key.empty() && key.size() <= kMaxKeyBytes && RedisKey(key) == redis_key;
  return ours ? std::optional(key) : std::nullopt;
}

uint32_t ChunkCount(uint64_t object_bytes) {
  if (object_bytes <= kMaxWholeBytes) return 0;
  return static_cast<uint32_t>((object_bytes + kChunkBytes - 1) / kChunkBytes);
}

uint64_t BytesOfChunk(uint64_t object_bytes, uint32_t index) {
  return std::min(kChunkBytes, object_bytes - index * kChunkBytes);
}

std::string ChunkKey(std::string_view redis_key, const ObjectVersion& generation, uint32_t index) {
  return fmt::format("{{{}}}:{:016x}{:016x}:{}", redis_key, generation.high, generation.low, index);
}

std::vector<std::string> ChunkKeys(std::string_view redis_key, const ObjectVersion& generation,
                                   uint64_t object_bytes) {
  std::vector<std::string> keys;
  for (uint32_t i = 0; i < ChunkCount(object_bytes); ++i) {
    keys.push_back(ChunkKey(redis_key, generation, i));
  }
  return keys;
}

}  // namespace embercache::redis
