#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "embercache/buffer.h"
#include "embercache/digest.h"
#include "embercache/dtype.h"
#include "embercache/key.h"
#include "embercache/status.h"

namespace embercache {

// What all embeddings of one model and modality have in common.
struct EmbeddingSpec {
  Digest256 namespace_digest;
  Modality modality = Modality::kImage;
  DType dtype = DType::kF32;
  // Elements a row.
  uint32_t hidden = 0;

  // Bytes a row: one token.
  uint64_t row_bytes() const { return uint64_t{hidden} * DTypeSize(dtype); }
  bool operator==(const EmbeddingSpec&) const = default;
};

// One embedding: a row-major matrix [tokens, hidden].
struct EmbeddingInfo {
  EmbeddingKey key;
  EmbeddingSpec spec;
  uint64_t tokens = 0;
  // A JSON object in text (grid, timestamps, …); empty for none.
  std::string metadata;

  uint64_t payload_bytes() const { return tokens * spec.row_bytes(); }
};

class Block;
class HostCache;
struct CacheEntry;

// A read-only hold on one ready embedding: while it lives, the bytes stay where they are and do not
// change. Outlives the cache it came from. Move-only; one Pin is not for two threads at once, but
// different Pins of one embedding are.
class Pin {
 public:
  Pin() = default;
  Pin(Pin&& other) noexcept;
  Pin& operator=(Pin&& other) noexcept;
  ~Pin() { Release(); }

  explicit operator bool() const { return block_ != nullptr; }
  // REQUIRES for all below: not empty.
  const EmbeddingInfo& info() const;
  // The payload, in order, in one span a run of pages; a row never crosses from one to the next.
  std::span<const ConstBuffer> buffers() const;
  // False for an item that got no pages: it lives only as long as its pins.
  bool cached() const { return entry_ != nullptr; }
  // Another hold on the same embedding.
  Pin Share() const;

  // Gives the hold up. An empty Pin stays empty.
  void Release();

 private:
  friend class HostCache;
  friend class GlobalCache;
  Pin(std::shared_ptr<HostCache> core, CacheEntry* entry, std::shared_ptr<const Block> block);

  std::shared_ptr<HostCache> core_;
  CacheEntry* entry_ = nullptr;
  std::shared_ptr<const Block> block_;
};

// The right, and the duty, to fill one embedding that nobody has yet: the leader's side of single
// flight. Reserve memory, fill buffers(), Commit; or Abort. A Claim that is dropped aborts. Others
// who ask for the same key meanwhile wait for this. Move-only; calls on one Claim must not overlap.
class Claim {
 public:
  Claim() = default;
  Claim(Claim&& other) noexcept;
  Claim& operator=(Claim&& other) noexcept;
  ~Claim();

  explicit operator bool() const { return entry_ != nullptr; }
  const EmbeddingKey& key() const;
  // Whether somebody else waits for this embedding now.
  bool wanted() const;

  // Memory for up to `payload_bytes` (an upper bound will do) and `metadata_bytes`: pages of the
  // pool, evicting if need be, else a block of the request arena (then uncached() is true and
  // nothing stays in the cache). ResourceExhausted when neither has room now. Called again, it
  // lets the earlier memory go first.
  Status Reserve(uint64_t payload_bytes, uint64_t metadata_bytes);
  // Gives the memory back without giving up the lead. A store call that still writes to it keeps it
  // out of use until it returns.
  void DropMemory();

  // REQUIRES for all below: reserved.
  bool uncached() const;
  // Writable, in order; their sum is the payload bytes that were reserved.
  std::span<const MutableBuffer> buffers() const;
  // Makes the entry ready with `tokens` rows and wakes those who wait. Surplus pages go back. Ends
  // the claim. Invalid when the rows or the metadata exceed what was reserved: then it aborts.
  // `cost_ms`, milliseconds of encoder time, is for eviction policies that weigh it.
  Result<Pin> Commit(uint64_t tokens, std::string metadata, double cost_ms = 0);

  // Ends the claim; those who wait get `reason`, and the first to ask again leads.
  void Abort(Status reason);

 private:
  friend class HostCache;
  friend struct ClaimAccess;
  // The memory, for a transfer that may outlive the claim.
  const std::shared_ptr<Block>& block() const;
  // Commit of what a store held: the trailer is there already.
  Result<Pin> CommitFetched(uint64_t tokens, std::string metadata);
  Claim(std::shared_ptr<HostCache> core, CacheEntry* entry);

  std::shared_ptr<HostCache> core_;
  CacheEntry* entry_ = nullptr;
};

}  // namespace embercache
