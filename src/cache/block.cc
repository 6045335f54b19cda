#include "src/cache/block.h"

#include <cassert>
#include <cstring>

namespace embercache {

Block::Block(PageList memory, uint64_t payload_bytes)
    : memory_(std::move(memory)),
      reserved_bytes_(payload_bytes),
      fill_buffers_(memory_.PageSpans(payload_bytes)) {
  assert(payload_bytes > 0);
}

std::vector<MutableBuffer> Block::ObjectFillBuffers(uint64_t object_bytes,
                                                    uint64_t trailer_blocks) const {
  assert(object_bytes % kBlockBytes == 0 && trailer_blocks <= memory_.num_trailer_blocks());
  const uint64_t trailer_bytes = trailer_blocks * kBlockBytes;
  std::vector<MutableBuffer> buffers = memory_.PageSpans(object_bytes - trailer_bytes);
  buffers.push_back(memory_.TrailerSpan().first(trailer_bytes));
  return buffers;
}

void Block::Seal(EmbeddingInfo info, bool from_store) {
  const uint64_t payload_bytes = info.payload_bytes();
  assert(payload_bytes > 0 && payload_bytes <= reserved_bytes_);
  assert(TrailerBlocks(info.metadata.size()) <= memory_.num_trailer_blocks());
  info_ = std::move(info);
  from_store_ = from_store;
  memory_.Truncate(memory_.pool().PagesFor(payload_bytes));
  memory_.SetState(PageState::kReady);
  fill_buffers_.clear();
  for (MutableBuffer span : memory_.PageSpans(payload_bytes)) payload_.emplace_back(span);
  MutexLock lock(trailer_mutex_);
  trailer_built_ = from_store;
}

void Block::Quarantine() {
  memory_.SetState(PageState::kQuarantined);
}

std::vector<ConstBuffer> Block::ObjectBuffers(uint64_t created_ms, bool with_checksum) const {
  const uint64_t padded = PaddedBytes(info_.payload_bytes());
  std::vector<MutableBuffer> buffers = memory_.PageSpans(padded);
  const MutableBuffer trailer =
      memory_.TrailerSpan().first(TrailerBlocks(info_.metadata.size()) * kBlockBytes);
  {
    MutexLock lock(trailer_mutex_);
    if (!trailer_built_) {
      const uint64_t padding = padded - info_.payload_bytes();
      std::memset(buffers.back().data() + buffers.back().size() - padding, 0, padding);
      EncodeTrailer({.info = info_,
                     .payload_bytes = info_.payload_bytes(),
                     .checksum = with_checksum ? ChecksumOf(payload_) : PayloadChecksum{},
                     .created_ms = created_ms,
                     .shape_unknown = false},
                    trailer);
      trailer_built_ = true;
    }
  }
  buffers.push_back(trailer);
  return {buffers.begin(), buffers.end()};
}

}  // namespace embercache
