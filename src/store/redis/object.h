#pragma once

// How an object lies in Redis; docs/design/redis.md has it byte by byte.
//
// Each value begins with a head. An object of up to kMaxWholeBytes is one value under its key. A
// larger one is cut into chunks of kChunkBytes, each a value of its own, and a manifest, a head
// without payload, is what lies under the key. The chunks' names hold the generation, which is new
// for each object that is written.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "embercache/status.h"
#include "embercache/store.h"

namespace embercache::redis {

inline constexpr uint64_t kChunkBytes = 1 << 20;
inline constexpr uint64_t kMaxWholeBytes = (1 << 20) + (8 << 10);
inline constexpr uint64_t kMaxObjectBytes = 16ULL << 30;
inline constexpr size_t kHeadBytes = 48;

enum class HeadKind : uint8_t { kWhole = 1, kManifest = 2, kChunk = 3 };

struct Head {
  HeadKind kind = HeadKind::kWhole;
  uint64_t key_check = 0;  // KeyCheck of the object's key
  ObjectVersion generation;
  uint64_t object_bytes = 0;  // of the whole object, without heads
  uint32_t chunk_index = 0;   // of a chunk

  std::array<std::byte, kHeadBytes> Encode() const;
  // Corruption for what is no head, Unimplemented for one of a later format.
  static Result<Head> Decode(std::span<const std::byte> bytes);
  bool operator==(const Head&) const = default;
};

// XXH3-64 of the key, so that a value is not taken for another key's. Against accidents, no proof.
uint64_t KeyCheck(std::string_view key);

// A generation that no other object has: 128 random bits.
ObjectVersion NewGeneration();

// What the key text is called in Redis: itself, or "hex_" and its digits in base 16 where it has a
// brace, which would move it to another slot, or begins like that itself.
std::string RedisKey(std::string_view key);
// The key text of a name that RedisKey gives; nullopt for any other name.
std::optional<std::string> KeyOfRedisKey(std::string_view redis_key);

// Chunks of an object of so many bytes; 0 when it is one value.
uint32_t ChunkCount(uint64_t object_bytes);
// Bytes of a chunk, without its head.
uint64_t BytesOfChunk(uint64_t object_bytes, uint32_t index);
// "{<redis key>}:<generation>:<index>": in the same slot as the redis key.
std::string ChunkKey(std::string_view redis_key, const ObjectVersion& generation, uint32_t index);
std::vector<std::string> ChunkKeys(std::string_view redis_key, const ObjectVersion& generation,
                                   uint64_t object_bytes);

// The part [offset, offset + bytes) of memory that lies in several buffers.
template <typename Buffer>
std::vector<Buffer> Slice(std::span<const Buffer> buffers, uint64_t offset, uint64_t bytes) {
  std::vector<Buffer> slice;
  for (const Buffer& buffer : buffers) {
    if (bytes == 0) break;
    if (offset >= buffer.size()) {
      offset -= buffer.size();
      continue;
    }
    const size_t length = std::min<uint64_t>(buffer.size() - offset, bytes);
    slice.push_back(buffer.subspan(offset, length));
    bytes -= length;
    offset = 0;
  }
  return slice;
}

}  // namespace embercache::redis
