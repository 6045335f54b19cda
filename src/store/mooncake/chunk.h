#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "src/store/mooncake/bounce_area.h"
#include "src/store/mooncake/bridge.h"
#include "src/store/mooncake/session.h"
#include "src/store/mooncake/supervisor.h"
#include "src/store/store_call.h"

namespace embercache::mooncake {

// One object of a chunk: in place where the bridge has all of its memory, else by the bounce area.
struct Transfer {
  size_t index = 0;  // of the item
  uint64_t bytes = 0;
  Request request;
  bool bounced = false;
  uint64_t bounce_offset = 0;
};

// Objects that go in one request.
struct Chunk {
  std::vector<Transfer> transfers;
  size_t parts = 0;
  uint64_t bounce_bytes = 0;
  BouncePiece piece;

  MutableBuffer BounceOf(const Transfer& transfer) const {
    return piece.memory().subspan(transfer.bounce_offset, transfer.bytes);
  }
  // Takes the bounce area's memory: all that the chunk needs at once, so that two calls cannot wait
  // for what the other holds.
  Status TakeBounce(Supervisor& supervisor, const Bridge& bridge, TimePoint deadline);
};

// Cuts the items into chunks that a request can hold.
class ChunkPlan {
 public:
  ChunkPlan(Supervisor& supervisor, const Bridge& bridge)
      : supervisor_(supervisor), bridge_(bridge) {}

  template <typename Item>
  void Add(size_t index, const Item& item) {
    Transfer transfer;
    transfer.index = index;
    transfer.request.key = item.key;
    for (const ConstBuffer buffer : item.buffers) AddBuffer(buffer, transfer);
    Add(std::move(transfer));
  }
  std::vector<Chunk> Take() { return std::move(chunks_); }

 private:
  void AddBuffer(ConstBuffer buffer, Transfer& transfer);
  void Add(Transfer transfer);

  Supervisor& supervisor_;
  const Bridge& bridge_;
  std::vector<Chunk> chunks_;
};

// Runs one chunk after the other, as long as the call may go on. Each is over before the next one
// starts, its bounce memory given back: the next one may wait for it.
template <typename Result, typename Run>
void RunChunks(const Session& session, std::vector<Chunk> chunks, std::vector<Result>& results,
               Run run) {
  for (Chunk& planned : chunks) {
    Chunk chunk = std::move(planned);
    const Status status = session.Check();
    if (status.ok()) {
      run(chunk);
      continue;
    }
    for (const Transfer& transfer : chunk.transfers) results[transfer.index].status = status;
  }
}

}  // namespace embercache::mooncake
