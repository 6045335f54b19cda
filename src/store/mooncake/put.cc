#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "src/store/mooncake/chunk.h"
#include "src/store/mooncake/codes.h"
#include "src/store/mooncake/session.h"

namespace embercache::mooncake {
namespace {

// Eviction, which runs in the background, may make room meanwhile.
constexpr Duration kRoomPauses[] = {std::chrono::milliseconds(50), std::chrono::milliseconds(200)};

// The puts of one chunk.
class ChunkPut {
 public:
  ChunkPut(const Session& session, Bridge& bridge, std::span<const PutItem> items,
           std::vector<PutResult>& results)
      : session_(session), bridge_(bridge), items_(items), results_(results) {}

  void Run(Chunk& chunk) {
    std::vector<const Transfer*> left;
    std::vector<std::string> keys;
    for (const Transfer& transfer : chunk.transfers) {
      left.push_back(&transfer);
      keys.emplace_back(transfer.request.key);
    }
    const auto hold = session_.key_locks.Take(std::move(keys), session_.context.deadline);
    if (!hold) {
      return FailAll(left, Status::DeadlineExceeded("another put of the key is still running"));
    }
    const Status room = chunk.TakeBounce(session_.supervisor, bridge_, session_.context.deadline);
    if (!room.ok()) return FailAll(left, room);
    for (const Transfer& transfer : chunk.transfers) CopyIn(chunk, transfer);
    RemoveReplaced(left);
    Put(left);
    // Before the key may be put again.
    if (fatal_code_ != 0) EndAfter(bridge_, "put", fatal_code_);
  }

 private:
  void CopyIn(const Chunk& chunk, const Transfer& transfer) {
    if (!transfer.bounced) return;
    std::byte* to = chunk.BounceOf(transfer).data();
    for (const ConstBuffer& buffer : items_[transfer.index].buffers) {
      if (buffer.empty()) continue;
      std::memcpy(to, buffer.data(), buffer.size());
      to += buffer.size();
    }
  }

  // What is to be replaced is removed first; it cannot be done as one.
  void RemoveReplaced(std::vector<const Transfer*>& left) {
    std::vector<std::string_view> keys;
    std::vector<size_t> indices;
    for (const Transfer* transfer : left) {
      if (items_[transfer->index].mode != PutMode::kReplace) continue;
      keys.push_back(transfer->request.key);
      indices.push_back(transfer->index);
    }
    if (keys.empty()) return;
    const auto removed = RemoveKeys(session_, bridge_, keys);
    for (size_t i = 0; i < indices.size(); ++i) results_[indices[i]].status = removed[i].status;
    std::erase_if(
        left, [this](const Transfer* transfer) { return !results_[transfer->index].status.ok(); });
  }

  void Put(std::vector<const Transfer*> left) {
    for (size_t tries = 0; !left.empty(); ++tries) {
      left = Attempt(left);
      if (left.empty()) return;
      const bool may_wait = tries < std::size(kRoomPauses) && session_.Check().ok() &&
                            SteadyClock().Now() + kRoomPauses[tries] < session_.context.deadline;
      if (!may_wait) {
        return FailAll(left, Status::ResourceExhausted("put answers " + DescribeCode(kNoRoom)));
      }
      std::this_thread::sleep_for(kRoomPauses[tries]);
    }
  }

  // Returns those that found no room.
  std::vector<const Transfer*> Attempt(const std::vector<const Transfer*>& transfers) {
    std::vector<Request> requests;
    for (const Transfer* transfer : transfers) requests.push_back(transfer->request);
    const auto codes = bridge_.Ask(Op::kPut, requests, session_.context.deadline);
    if (!codes.ok()) {
      FailAll(transfers, codes.status());
      return {};
    }
    std::vector<const Transfer*> no_room;
    for (size_t i = 0; i < transfers.size(); ++i) {
      const int64_t code = (*codes)[i];
      if (code == 0) {
        // Stored, or there already, or being stored by another: it does not tell.
        results_[transfers[i]->index].outcome = PutOutcome::kAccepted;
      } else if (code == kNoRoom) {
        no_room.push_back(transfers[i]);
      } else {
        Fail(*transfers[i], code);
      }
    }
    return no_room;
  }

  void Fail(const Transfer& transfer, int64_t code) {
    results_[transfer.index].status =
        FailedTransfer(session_, "put", code, transfer.bytes, &fatal_code_);
  }

  void FailAll(const std::vector<const Transfer*>& transfers, const Status& status) {
    for (const Transfer* transfer : transfers) results_[transfer->index].status = status;
  }

  const Session& session_;
  Bridge& bridge_;
  const std::span<const PutItem> items_;
  std::vector<PutResult>& results_;
  int64_t fatal_code_ = 0;
};

Status CheckSize(uint64_t bytes) {
  if (bytes > 0 && bytes <= kMaxObjectBytes) return Status::Ok();
  return Status::Invalid(
      fmt::format("an object of {} bytes; Mooncake takes 1 to {}", bytes, kMaxObjectBytes));
}

}  // namespace

void PutObjects(const Session& session, std::span<const PutItem> items,
                std::span<const size_t> open, std::vector<PutResult>& results) {
  const auto current = session.supervisor.Current();
  if (!current.ok()) {
    for (const size_t i : open) results[i].status = current.status();
    return;
  }
  Bridge& bridge = **current;
  ChunkPlan plan(session.supervisor, bridge);
  for (const size_t i : open) {
    results[i].status = CheckSize(TotalBytes(items[i].buffers));
    if (results[i].status.ok()) plan.Add(i, items[i]);
  }
  RunChunks(session, plan.Take(), results,
            [&](Chunk& chunk) { ChunkPut(session, bridge, items, results).Run(chunk); });
}

}  // namespace embercache::mooncake
