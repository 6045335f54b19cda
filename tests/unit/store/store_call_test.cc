#include "src/store/store_call.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace embercache {
namespace {

using std::chrono::milliseconds;

TEST(CallGateTest, CloseWaitsForThoseInsideAndNoLonger) {
  CallGate gate;
  std::atomic<bool> entered = false;
  std::atomic<bool> may_leave = false;
  std::atomic<bool> left = false;
  std::thread caller([&] {
    const CallGate::Pass pass = gate.Enter();
    entered = true;
    may_leave.wait(false);
    left = true;
  });
  while (!entered) std::this_thread::yield();
  EXPECT_EQ(gate.Close(SteadyClock().Now() + milliseconds(5)).code(),
            StatusCode::kDeadlineExceeded);
  may_leave = true;
  may_leave.notify_one();
  EXPECT_TRUE(gate.Close(TimePoint::max()).ok());
  EXPECT_TRUE(left);
  caller.join();
}

TEST(CallGateTest, NobodyEntersAShutGate) {
  CallGate gate;
  EXPECT_TRUE(gate.Enter());
  EXPECT_TRUE(gate.Close(SteadyClock().Now()).ok());
  EXPECT_FALSE(gate.Enter());
  EXPECT_TRUE(gate.closed());
  EXPECT_TRUE(gate.Close(SteadyClock().Now()).ok());
}

TEST(StoreCallTest, KeysHaveOneToFiveHundredTwelveBytes) {
  EXPECT_TRUE(CheckKey("k").ok());
  EXPECT_TRUE(CheckKey(std::string(512, '\0')).ok());
  EXPECT_EQ(CheckKey("").code(), StatusCode::kInvalid);
  EXPECT_EQ(CheckKey(std::string(513, 'k')).message(), "a key of 513 bytes; keys have 1 to 512");
}

class FixedClock final : public Clock {
 public:
  TimePoint Now() const override { return now; }
  TimePoint now{milliseconds(1000)};
};

TEST(StoreCallTest, ACallStopsAtItsDeadlineAndWhenCancelled) {
  const FixedClock clock;
  std::atomic<bool> cancelled = false;
  CallContext context;
  EXPECT_TRUE(CheckCall(context, clock).ok());
  context.deadline = clock.now + milliseconds(1);
  context.cancelled = &cancelled;
  EXPECT_TRUE(CheckCall(context, clock).ok());
  context.deadline = clock.now;
  EXPECT_EQ(CheckCall(context, clock).code(), StatusCode::kDeadlineExceeded);
  cancelled = true;
  EXPECT_EQ(CheckCall(context, clock).code(), StatusCode::kCancelled);
}

// A clock that jumps to the deadline while the second item is served.
TEST(StoreCallTest, ItemsServedBeforeTheDeadlineKeepTheirResults) {
  FixedClock clock;
  CallGate gate;
  CallContext context;
  context.deadline = clock.now + milliseconds(1);
  const std::vector<std::string_view> keys = {"a", "b", "c"};
  const auto results = AnswerEach<StatResult>(std::span<const std::string_view>(keys), context,
                                              clock, gate, [&](std::string_view key) {
                                                if (key == "b") clock.now = context.deadline;
                                                StatResult result;
                                                result.found = true;
                                                return result;
                                              });
  ASSERT_EQ(results.size(), 3U);
  EXPECT_TRUE(results[0].found && results[1].found);
  EXPECT_EQ(results[2].status.code(), StatusCode::kDeadlineExceeded);
}

TEST(StoreCallTest, WithoutMemoryAnItemFailsAlone) {
  CallGate gate;
  const std::vector<std::string_view> keys = {"a", "b"};
  const auto results =
      AnswerEach<StatResult>(std::span<const std::string_view>(keys), {}, SteadyClock(), gate,
                             [&](std::string_view key) -> StatResult {
                               if (key == "a") throw std::bad_alloc();
                               return {};
                             });
  EXPECT_EQ(results[0].status.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(results[1].status.ok());
}

}  // namespace
}  // namespace embercache
