#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "embercache/embedding.h"
#include "src/base/mutex.h"
#include "src/cache/envelope.h"
#include "src/memory/page_pool.h"

namespace embercache {

// The bytes of one embedding: pages, trailer blocks, and what they hold. Written by its one filler
// until Seal; immutable after, but for the trailer, which is built once when a put needs it.
// Whoever has a shared_ptr keeps the memory out of other use: entries, pins, and transfers that
// have not returned.
class Block {
 public:
  // REQUIRES: payload_bytes > 0, and the pages and trailer blocks suffice for what is reserved.
  Block(PageList memory, uint64_t payload_bytes);

  uint64_t reserved_bytes() const { return reserved_bytes_; }
  uint32_t num_pages() const { return memory_.num_pages(); }
  uint32_t num_trailer_blocks() const { return memory_.num_trailer_blocks(); }
  const PagePool& pool() const { return memory_.pool(); }

  // The filler's: the payload as reserved.
  std::span<const MutableBuffer> fill_buffers() const { return fill_buffers_; }
  // The filler's, for a read of a whole object: padded payload, then `trailer_blocks` blocks.
  // REQUIRES: object_bytes is a multiple of 4096 and fits what was reserved.
  std::vector<MutableBuffer> ObjectFillBuffers(uint64_t object_bytes,
                                               uint64_t trailer_blocks) const;

  // Ends the filling: the block holds `info`. Surplus pages go back. With `from_store`, the trailer
  // blocks hold the object's trailer already.
  // REQUIRES: info.payload_bytes() <= reserved_bytes(), metadata fits the trailer blocks.
  void Seal(EmbeddingInfo info, bool from_store);
  // Not part of a cache entry any more, though a transfer may still use it: counted as such.
  void Quarantine();
  // Gives the memory back before the block goes, unless a transfer or a pin still has the block.
  // REQUIRES: called by its owner, once, at the end.
  void ReturnMemory() { memory_.Reset(); }

  // REQUIRES for all below: sealed.
  const EmbeddingInfo& info() const { return info_; }
  std::span<const ConstBuffer> payload() const { return payload_; }
  // The whole object as it is stored; builds the trailer the first time, with the payload's
  // checksum or, for a store that keeps no trailers, without. Thread-safe.
  std::vector<ConstBuffer> ObjectBuffers(uint64_t created_ms, bool with_checksum) const;
  uint64_t object_bytes() const {
    return ObjectBytes(info_.payload_bytes(), info_.metadata.size());
  }

  // Read from a store, not computed here.
  bool from_store() const { return from_store_; }

 private:
  PageList memory_;
  const uint64_t reserved_bytes_;
  std::vector<MutableBuffer> fill_buffers_;
  EmbeddingInfo info_;
  bool from_store_ = false;
  std::vector<ConstBuffer> payload_;
  mutable Mutex trailer_mutex_;
  mutable bool trailer_built_ GUARDED_BY(trailer_mutex_) = false;
};

// What look-ups do with a claim beyond its public face.
struct ClaimAccess {
  static const std::shared_ptr<Block>& block(const Claim& claim) { return claim.block(); }
  static Result<Pin> CommitFetched(Claim& claim, uint64_t tokens, std::string metadata) {
    return claim.CommitFetched(tokens, std::move(metadata));
  }
};

}  // namespace embercache
