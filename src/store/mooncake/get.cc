#include <cstring>
#include <utility>

#include "src/store/mooncake/chunk.h"
#include "src/store/mooncake/codes.h"
#include "src/store/mooncake/session.h"

namespace embercache::mooncake {
namespace {

// The gets of one chunk.
class ChunkGet {
 public:
  ChunkGet(const Session& session, Bridge& bridge, std::span<const GetItem> items,
           std::vector<GetResult>& results)
      : session_(session), bridge_(bridge), items_(items), results_(results) {}

  void Run(Chunk& chunk) {
    const Status room = chunk.TakeBounce(session_.supervisor, bridge_, session_.context.deadline);
    std::vector<const Transfer*> left;
    for (const Transfer& transfer : chunk.transfers) left.push_back(&transfer);
    if (!room.ok()) return FailAll(left, room);
    left = Attempt(chunk, left);
    if (!left.empty()) left = Attempt(chunk, left);
    FailAll(left, Status::Unavailable("get answers " + DescribeCode(kLeaseExpired) + ", twice"));
    if (fatal_code_ != 0) EndAfter(bridge_, "get", fatal_code_);
  }

 private:
  // Returns those to try once more.
  std::vector<const Transfer*> Attempt(const Chunk& chunk,
                                       const std::vector<const Transfer*>& transfers) {
    std::vector<const Transfer*> again;
    std::vector<const Transfer*> doubtful;
    std::vector<int64_t> doubtful_codes;
    const auto codes = Ask(Op::kGet, transfers);
    if (!codes.ok()) {
      FailAll(transfers, codes.status());
      return again;
    }
    for (size_t i = 0; i < transfers.size(); ++i) {
      const int64_t code = (*codes)[i];
      if (code >= 0) {
        Take(chunk, *transfers[i], static_cast<uint64_t>(code));
      } else if (IsAbsent(code)) {
        results_[transfers[i]->index].outcome = GetOutcome::kMiss;
      } else if (code == kLeaseExpired) {
        again.push_back(transfers[i]);
      } else if (code == kInvalidParameters || code == kTransferFailed) {
        doubtful.push_back(transfers[i]);
        doubtful_codes.push_back(code);
      } else {
        Fail(*transfers[i], code);
      }
    }
    if (!doubtful.empty()) JudgeSizes(doubtful, doubtful_codes);
    return again;
  }

  // An object of another size is refused before anything moves, by these codes too.
  void JudgeSizes(const std::vector<const Transfer*>& transfers,
                  const std::vector<int64_t>& get_codes) {
    const auto sizes = Ask(Op::kSize, transfers);
    for (size_t i = 0; i < transfers.size(); ++i) {
      GetResult& result = results_[transfers[i]->index];
      const int64_t size = sizes.ok() ? (*sizes)[i] : get_codes[i];
      if (size >= 0 && static_cast<uint64_t>(size) != transfers[i]->bytes) {
        result.outcome = GetOutcome::kWrongSize;
        result.bytes = static_cast<uint64_t>(size);
      } else {
        Fail(*transfers[i], get_codes[i]);
      }
    }
  }

  void Take(const Chunk& chunk, const Transfer& transfer, uint64_t bytes) {
    GetResult& result = results_[transfer.index];
    result.bytes = bytes;
    if (bytes != transfer.bytes) {
      result.outcome = GetOutcome::kWrongSize;
      return;
    }
    if (transfer.bounced) {
      const std::byte* from = chunk.BounceOf(transfer).data();
      for (const MutableBuffer& buffer : items_[transfer.index].buffers) {
        if (buffer.empty()) continue;
        std::memcpy(buffer.data(), from, buffer.size());
        from += buffer.size();
      }
    }
    result.outcome = GetOutcome::kHit;
  }

  void Fail(const Transfer& transfer, int64_t code) {
    results_[transfer.index].status =
        FailedTransfer(session_, "get", code, transfer.bytes, &fatal_code_);
  }

  void FailAll(const std::vector<const Transfer*>& transfers, const Status& status) {
    for (const Transfer* transfer : transfers) results_[transfer->index].status = status;
  }

  Result<std::vector<int64_t>> Ask(Op op, const std::vector<const Transfer*>& transfers) {
    std::vector<Request> requests;
    for (const Transfer* transfer : transfers) {
      requests.push_back(op == Op::kGet ? transfer->request : Request{transfer->request.key, {}});
    }
    return bridge_.Ask(op, requests, session_.context.deadline);
  }

  const Session& session_;
  Bridge& bridge_;
  const std::span<const GetItem> items_;
  std::vector<GetResult>& results_;
  int64_t fatal_code_ = 0;
};

// Buffers that no object can fill: what is there has another size.
void StatInstead(const Session& session, std::span<const GetItem> items,
                 const std::vector<size_t>& indices, std::vector<GetResult>& results) {
  std::vector<std::string_view> keys;
  std::vector<size_t> all;
  for (const size_t i : indices) {
    all.push_back(keys.size());
    keys.push_back(items[i].key);
  }
  std::vector<StatResult> stats(keys.size());
  StatObjects(session, Op::kSize, keys, all, stats);
  for (size_t i = 0; i < indices.size(); ++i) {
    GetResult& result = results[indices[i]];
    result.status = stats[i].status;
    if (!stats[i].status.ok()) continue;
    result.outcome = stats[i].found ? GetOutcome::kWrongSize : GetOutcome::kMiss;
    result.bytes = stats[i].bytes;
  }
}

}  // namespace

void GetObjects(const Session& session, std::span<const GetItem> items,
                std::span<const size_t> open, std::vector<GetResult>& results) {
  const auto current = session.supervisor.Current();
  if (!current.ok()) {
    for (const size_t i : open) results[i].status = current.status();
    return;
  }
  Bridge& bridge = **current;
  ChunkPlan plan(session.supervisor, bridge);
  std::vector<size_t> unfillable;
  for (const size_t i : open) {
    const uint64_t bytes = TotalBytes(items[i].buffers);
    if (bytes == 0 || bytes > kMaxObjectBytes) {
      unfillable.push_back(i);
    } else {
      plan.Add(i, items[i]);
    }
  }
  if (!unfillable.empty()) StatInstead(session, items, unfillable, results);
  RunChunks(session, plan.Take(), results,
            [&](Chunk& chunk) { ChunkGet(session, bridge, items, results).Run(chunk); });
}

}  // namespace embercache::mooncake
