#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "embercache/store.h"
#include "src/store/mooncake/bridge.h"
#include "src/store/mooncake/key_locks.h"
#include "src/store/mooncake/supervisor.h"
#include "src/store/store_call.h"

namespace embercache::mooncake {

// What one call of the store works with. The functions below fill the results of the items that
// `open` lists, whose keys are good and differ; where they return, no buffer is in use any more.
struct Session {
  Supervisor& supervisor;
  KeyLocks& key_locks;
  const Clock& clock;
  CallGate& gate;
  const CallContext& context;

  // Cancelled, DeadlineExceeded, or OK when the call may go on.
  Status Check() const {
    return gate.closed() ? CallGate::ClosedStatus() : CheckCall(context, clock);
  }
};

inline constexpr uint64_t kMaxObjectBytes = 1ULL << 30;

void GetObjects(const Session& session, std::span<const GetItem> items,
                std::span<const size_t> open, std::vector<GetResult>& results);
void PutObjects(const Session& session, std::span<const PutItem> items,
                std::span<const size_t> open, std::vector<PutResult>& results);
void RemoveObjects(const Session& session, std::span<const RemoveItem> items,
                   std::span<const size_t> open, std::vector<RemoveResult>& results);

// `op`: kExist, whose results have no size, or kSize.
void StatObjects(const Session& session, Op op, std::span<const std::string_view> keys,
                 std::span<const size_t> open, std::vector<StatResult>& results);

// One result a key. Waits while a key is leased, some seconds at most.
std::vector<RemoveResult> RemoveKeys(const Session& session, Bridge& bridge,
                                     std::span<const std::string_view> keys);

// What an answer that fails a transfer of so many bytes means for its item. Where the memory may
// still be in use after it, `fatal_code` becomes that answer: for EndAfter.
Status FailedTransfer(const Session& session, std::string_view operation, int64_t code,
                      uint64_t bytes, int64_t* fatal_code);

// Ends the bridge after a fatal answer to a transfer, and returns when that is over.
void EndAfter(Bridge& bridge, std::string_view operation, int64_t code);

}  // namespace embercache::mooncake
