#include "src/store/mooncake/chunk.h"

#include <utility>

namespace embercache::mooncake {
namespace {

// So much of the bounce area for one chunk; one object may be larger.
constexpr uint64_t kChunkBounceBytes = 16ULL << 20;
constexpr uint64_t kAlignment = 64;

}  // namespace

void ChunkPlan::AddBuffer(ConstBuffer buffer, Transfer& transfer) {
  if (buffer.empty()) return;
  transfer.bytes += buffer.size();
  if (transfer.bounced) return;
  std::vector<Part>& parts = transfer.request.parts;
  const auto address = supervisor_.AddressOf(bridge_, buffer);
  if (!address) {
    transfer.bounced = true;
  } else if (!parts.empty() && parts.back().address + parts.back().size == *address) {
    parts.back().size += buffer.size();
  } else {
    parts.push_back({*address, buffer.size()});
    transfer.bounced = parts.size() > bridge_.max_object_parts();
  }
}

void ChunkPlan::Add(Transfer transfer) {
  if (transfer.bounced) transfer.request.parts.clear();
  const size_t parts = transfer.bounced ? 1 : transfer.request.parts.size();
  const uint64_t bounce_bytes =
      transfer.bounced ? (transfer.bytes + kAlignment - 1) / kAlignment * kAlignment : 0;
  const bool fits = !chunks_.empty() && chunks_.back().transfers.size() < kMaxRequestKeys &&
                    chunks_.back().parts + parts <= kMaxRequestParts &&
                    chunks_.back().bounce_bytes + bounce_bytes <= kChunkBounceBytes;
  if (!fits) chunks_.emplace_back();
  Chunk& chunk = chunks_.back();
  transfer.bounce_offset = chunk.bounce_bytes;
  chunk.bounce_bytes += bounce_bytes;
  chunk.parts += parts;
  chunk.transfers.push_back(std::move(transfer));
}

Status Chunk::TakeBounce(Supervisor& supervisor, const Bridge& bridge, TimePoint deadline) {
  if (bounce_bytes == 0) return Status::Ok();
  EMBERCACHE_ASSIGN_OR_RETURN(piece, supervisor.bounce().Take(bounce_bytes, deadline));
  const auto address = supervisor.AddressOf(bridge, piece.memory());
  if (!address) return Status::Unavailable("the bridge has no bounce area");
  for (Transfer& transfer : transfers) {
    if (!transfer.bounced) continue;
    transfer.request.parts = {{*address + transfer.bounce_offset, transfer.bytes}};
  }
  return Status::Ok();
}

}  // namespace embercache::mooncake
