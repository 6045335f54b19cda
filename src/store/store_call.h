#pragma once

// What every backend needs around a call: the checks of its key and limits, and the gate that Close
// shuts.

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string_view>
#include <vector>

#include "embercache/clock.h"
#include "embercache/status.h"
#include "embercache/store.h"
#include "src/base/mutex.h"

namespace embercache {

// Invalid for an empty key and for one of more than kMaxKeyBytes.
Status CheckKey(std::string_view key);

// Cancelled or DeadlineExceeded when the call should stop now, else OK.
Status CheckCall(const CallContext& context, const Clock& clock);

// Says how much of an item has come, to who wants to know.
inline void TellReceived(const CallContext& context, size_t item, uint64_t bytes) {
  if (context.received != nullptr) (*context.received)(item, bytes);
}

// Invalid for a page of no objects.
Status CheckListLimit(size_t limit);

// The sum of the buffers' sizes.
uint64_t TotalBytes(std::span<const MutableBuffer> buffers);
uint64_t TotalBytes(std::span<const ConstBuffer> buffers);

// Counts the calls in a store, and turns them away once closed. Thread-safe.
class CallGate {
 public:
  // Leaves the gate at the end of its scope. False when the gate was shut: answer ClosedStatus().
  class Pass {
   public:
    explicit Pass(CallGate* gate) : gate_(gate) {}
    ~Pass() {
      if (gate_ != nullptr) gate_->Leave();
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    explicit operator bool() const { return gate_ != nullptr; }

   private:
    CallGate* const gate_;
  };

  Pass Enter();
  // Shuts the gate and waits for those inside: OK, or DeadlineExceeded when some still are.
  Status Close(TimePoint deadline);
  bool closed();

  // What a call that found the gate shut answers.
  static Status ClosedStatus() { return Status::Cancelled("the store is closed"); }

 private:
  void Leave();

  Mutex mutex_;
  CondVar empty_;
  bool closed_ GUARDED_BY(mutex_) = false;
  uint64_t inside_ GUARDED_BY(mutex_) = 0;
};

inline std::string_view KeyOf(std::string_view key) {
  return key;
}
template <typename Item>
std::string_view KeyOf(const Item& item) {
  return item.key;
}

// A batch call whose items are served one by one: a result an item, from `call(item)`, or with the
// status that says why it was not called.
template <typename ResultType, typename Item, typename Call>
std::vector<ResultType> AnswerEach(std::span<const Item> items, const CallContext& context,
                                   const Clock& clock, CallGate& gate, Call call) {
  std::vector<ResultType> results(items.size());
  const CallGate::Pass pass = gate.Enter();
  for (size_t i = 0; i < items.size(); ++i) {
    Status status = pass ? CheckCall(context, clock) : CallGate::ClosedStatus();
    if (status.ok()) status = CheckKey(KeyOf(items[i]));
    if (status.ok()) {
      try {
        results[i] = call(items[i]);
      } catch (const std::bad_alloc&) {
        results[i] = {};
        status = Status::ResourceExhausted("no memory for the call");
      }
    }
    if (!status.ok()) results[i].status = std::move(status);
  }
  return results;
}

}  // namespace embercache
