#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "embercache/buffer.h"
#include "embercache/embedding.h"
#include "embercache/status.h"

namespace embercache {

// A stored object: payload, zeros up to a multiple of 4096, trailer. docs/formats.md has the
// trailer byte by byte; these functions are its only reader and writer.

// XXH3-128 of a payload, high half first.
struct PayloadChecksum {
  uint64_t high = 0;
  uint64_t low = 0;
  bool operator==(const PayloadChecksum&) const = default;
};

// Over `buffers` as one sequence of bytes.
PayloadChecksum ChecksumOf(std::span<const ConstBuffer> buffers);

// The checksum of a payload that comes bit by bit. Not thread-safe.
class RunningChecksum {
 public:
  RunningChecksum();
  RunningChecksum(RunningChecksum&&) noexcept;
  RunningChecksum& operator=(RunningChecksum&&) noexcept;
  ~RunningChecksum();

  // So many bytes are in it.
  uint64_t bytes() const { return bytes_; }
  // Takes in more of `buffers`, until the first `bytes` bytes of them are in it; with fewer than
  // there are, from their start. REQUIRES: the buffers hold so many.
  void ExtendTo(std::span<const ConstBuffer> buffers, uint64_t bytes);
  PayloadChecksum Finish() const;

 private:
  class Hash;
  std::unique_ptr<Hash> hash_;
  uint64_t bytes_ = 0;
};

struct Trailer {
  EmbeddingInfo info;
  uint64_t payload_bytes = 0;
  PayloadChecksum checksum;
  // Milliseconds since 1970; information only, since clocks differ.
  uint64_t created_ms = 0;
  // The writer knew only bytes: dtype, shape and modality in the trailer are empty.
  bool shape_unknown = false;
};

// Now, as Trailer::created_ms has it.
uint64_t WallMs();

// Metadata beyond this is refused.
inline constexpr uint64_t kMaxMetadataBytes = uint64_t{1} << 20;

// 4096-byte blocks that a trailer with so much metadata takes: one up to 3072 bytes.
uint64_t TrailerBlocks(uint64_t metadata_bytes);
// `payload_bytes` rounded up to a multiple of 4096.
uint64_t PaddedBytes(uint64_t payload_bytes);
// The size of the whole object.
uint64_t ObjectBytes(uint64_t payload_bytes, uint64_t metadata_bytes);

// Writes the trailer. REQUIRES: blocks.size() == TrailerBlocks(metadata size) * 4096.
void EncodeTrailer(const Trailer& trailer, MutableBuffer blocks);

enum class TrailerVerdict : uint8_t {
  kGood,
  kIncompatible,  // not our magic, or a format version of another release
  kCorrupt,       // ours, and damaged; or zeros
};

struct TrailerHead {
  TrailerVerdict verdict = TrailerVerdict::kCorrupt;
  // Of the whole trailer; valid when good.
  uint64_t blocks = 0;
};

// Reads the last block of an object far enough to tell how many blocks the trailer has. Only magic
// and version have been checked then, and that the number is possible.
TrailerHead PeekTrailer(ConstBuffer last_block);

// Reads and checks the whole trailer (its own checksum, numbers in range); `trailer` is written
// when good. REQUIRES: blocks.size() == PeekTrailer(last block).blocks * 4096.
TrailerVerdict DecodeTrailer(ConstBuffer blocks, Trailer* trailer);

// Whether a trailer is that of the object that was asked for: namespace, key, dtype, width,
// modality, rows × row bytes, and the row count unless it is -1. OK, or Corruption that names the
// difference.
Status CheckIdentity(const Trailer& trailer, const EmbeddingKey& key, const EmbeddingSpec& spec,
                     int64_t expected_tokens);

// Whether the bytes are what the trailer says: the object's length, zero padding, the payload's
// checksum. `content` is all before the trailer, in order; `begun` has taken in some of it, or
// nothing. OK, or Corruption that names the difference.
Status CheckContent(const Trailer& trailer, std::span<const ConstBuffer> content,
                    uint64_t object_bytes, RunningChecksum* begun);

}  // namespace embercache
