// Whatever happens to connections and servers: never wrong bytes, never an answer in another
// request's memory, and service again when the trouble is over.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "src/store/redis/object.h"
#include "tests/conformance/payload.h"
#include "tests/unit/store_redis/fault_proxy.h"
#include "tests/unit/store_redis/test_server.h"

namespace embercache::redis {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AnyOf;

constexpr size_t kLarge = (2 << 20) + 777;  // three chunks

CallContext Within(Duration time) {
  CallContext context;
  context.deadline = SteadyClock().Now() + time;
  return context;
}

// Tries until the store is well again. The test's own time limit ends it otherwise.
void Store(EmbeddingStore& store, const std::string& key, const Bytes& bytes) {
  while (PutOne(store, key, bytes, PutMode::kReplace).outcome != PutOutcome::kStored) {
    std::this_thread::sleep_for(milliseconds(10));
  }
}

void ExpectHitInTheEnd(EmbeddingStore& store, const std::string& key, const Bytes& bytes) {
  for (;;) {
    Bytes got;
    const GetResult get = GetOne(store, key, bytes.size(), &got);
    ASSERT_THAT(get.outcome, AnyOf(GetOutcome::kHit, GetOutcome::kFailed));
    if (get.outcome == GetOutcome::kHit) {
      EXPECT_TRUE(got == bytes);
      return;
    }
    std::this_thread::sleep_for(milliseconds(10));
  }
}

// A get is whole or fails.
void ExpectWholeOrFailed(EmbeddingStore& store, const std::string& key, const Bytes& bytes) {
  GuardedBuffers target({bytes.size() / 3, bytes.size() - bytes.size() / 3});
  const GetItem item{key, target.buffers()};
  const GetResult get = store.BatchGetIntoMultiBuffers({&item, 1}, Within(seconds(30))).at(0);
  ASSERT_THAT(get.outcome, AnyOf(GetOutcome::kHit, GetOutcome::kFailed));
  if (get.outcome == GetOutcome::kHit) {
    EXPECT_TRUE(target.Content() == bytes);
  }
  EXPECT_TRUE(target.GuardsHold());
}

class RedisFaultTest : public testing::Test {
 protected:
  TestServer server_;
  FaultProxy proxy_{server_.port()};
};

TEST_F(RedisFaultTest, RepliesThatAreCutAnywhereAreReadAgainOrFail) {
  const Bytes bytes = PayloadOf("cut", 700);
  const auto direct = OpenStoreAt(server_.url());
  Store(*direct, "emb_cut", bytes);
  // HELLO's answer, the object's, and a little more.
  for (int64_t cut = 0; cut < 1100; cut += 7) {
    proxy_.cut_replies_after = cut;
    proxy_.cuts_left = 2;
    proxy_.reset = cut % 2 == 0;
    const auto store = OpenStoreAt(proxy_.url());
    ExpectWholeOrFailed(*store, "emb_cut", bytes);
    ExpectHitInTheEnd(*store, "emb_cut", bytes);
  }
}

TEST_F(RedisFaultTest, LargeObjectsWhoseRepliesAreCutAreReadAgainOrFail) {
  const Bytes bytes = PayloadOf("cut", kLarge);
  const auto direct = OpenStoreAt(server_.url());
  Store(*direct, "emb_cut", bytes);
  const auto store = OpenStoreAt(proxy_.url());
  for (int64_t cut = 1; cut < (2 << 20); cut += 100'003) {
    proxy_.cut_replies_after = cut;
    proxy_.cuts_left = 3;
    ExpectWholeOrFailed(*store, "emb_cut", bytes);
    ExpectHitInTheEnd(*store, "emb_cut", bytes);
  }
}

TEST_F(RedisFaultTest, PutsThatAreCutAnywhereAreWholeOrNotThere) {
  const auto direct = OpenStoreAt(server_.url());
  const auto store = OpenStoreAt(proxy_.url());
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const size_t size = round % 2 == 0 ? 5000 : kLarge;
    const std::string key = fmt::format("emb_{}", round);
    const Bytes bytes = PayloadOf(key, size);
    const bool requests = round % 4 < 2;
    (requests ? proxy_.cut_requests_after : proxy_.cut_replies_after) =
        static_cast<int64_t>(random() % (requests ? size + 500 : 600));
    proxy_.cuts_left = 1 + round % 3;
    const PutResult put = PutOne(*store, key, bytes, PutMode::kIfAbsent, Within(seconds(30)));
    proxy_.cut_requests_after = proxy_.cut_replies_after = -1;
    Bytes got;
    const GetResult get = GetOne(*direct, key, size, &got);
    ASSERT_THAT(get.outcome, AnyOf(GetOutcome::kHit, GetOutcome::kMiss)) << get.status.ToString();
    if (get.outcome == GetOutcome::kHit) {
      EXPECT_TRUE(got == bytes);
    }
    if (put.outcome != PutOutcome::kFailed) {
      EXPECT_EQ(put.outcome, PutOutcome::kStored) << "its own lost answer is not another's object";
      EXPECT_EQ(get.outcome, GetOutcome::kHit);
    }
    // Nothing stays for good without a manifest.
    for (const std::string& chunk : server_.Keys()) {
      const bool ours = chunk.starts_with("{" + key + "}");
      if (ours && get.outcome == GetOutcome::kMiss) {
        EXPECT_GT(server_.Number({"PTTL", chunk}), 0);
      }
    }
  }
}

TEST_F(RedisFaultTest, AnAnswerAfterTheDeadlineTouchesNothingAndNobody) {
  const auto store = OpenStoreAt(proxy_.url());
  const size_t size = 300'000;
  const Bytes late = PayloadOf("late", size);
  const Bytes other = PayloadOf("other", size);
  Store(*store, "emb_late", late);
  Store(*store, "emb_other", other);
  const int connections = proxy_.connections();
  proxy_.swallow_replies = true;
  Bytes memory;
  EXPECT_EQ(GetOne(*store, "emb_late", size, &memory, Within(milliseconds(50))).status.code(),
            StatusCode::kDeadlineExceeded);
  const Bytes pattern(size, std::byte{0x3C});
  memory = pattern;
  proxy_.swallow_replies = false;
  // The late answer comes in before this one's.
  Bytes got;
  const GetResult get = GetOne(*store, "emb_other", size, &got);
  ASSERT_EQ(get.outcome, GetOutcome::kHit) << get.status.ToString();
  EXPECT_TRUE(got == other);
  EXPECT_TRUE(memory == pattern) << "a late answer was written into memory given back";
  EXPECT_EQ(proxy_.connections(), connections) << "one late answer is no reason to reconnect";
}

TEST_F(RedisFaultTest, ADeadlineInTheMiddleOfAnAnswerGivesTheMemoryBack) {
  const auto direct = OpenStoreAt(server_.url());
  for (const size_t size : {size_t{200'000}, kLarge}) {
    const std::string key = fmt::format("emb_{}", size);
    const Bytes bytes = PayloadOf(key, size);
    Store(*direct, key, bytes);
    const auto store = OpenStoreAt(proxy_.url());
    ASSERT_TRUE(StatOne(*store, key).found);
    proxy_.bytes_per_second = 1'000'000;
    Bytes memory;
    EXPECT_EQ(GetOne(*store, key, size, &memory, Within(milliseconds(60))).status.code(),
              StatusCode::kDeadlineExceeded);
    const Bytes pattern(size, std::byte{0x3C});
    memory = pattern;
    proxy_.bytes_per_second = 0;
    ExpectHitInTheEnd(*store, key, bytes);
    EXPECT_TRUE(memory == pattern);
  }
}

TEST_F(RedisFaultTest, ADeadlineInTheMiddleOfAPutLeavesNoHalfObject) {
  const auto direct = OpenStoreAt(server_.url());
  const auto store = OpenStoreAt(proxy_.url());
  Store(*store, "emb_warm", PayloadOf("warm", 10));
  for (const size_t size : {size_t{1'000'000}, size_t{20 << 20}}) {
    const std::string key = fmt::format("emb_{}", size);
    proxy_.bytes_per_second = 1'000'000;
    Bytes memory = PayloadOf("slow", size);
    const PutResult put =
        PutOne(*store, key, memory, PutMode::kIfAbsent, Within(milliseconds(100)));
    EXPECT_EQ(put.status.code(), StatusCode::kDeadlineExceeded);
    // The memory is the caller's again; what it holds now must not be stored.
    const Bytes sent = memory;
    std::fill(memory.begin(), memory.end(), std::byte{0});
    proxy_.bytes_per_second = 0;
    Store(*store, "emb_warm", PayloadOf("warm again", 10));
    // What had left for the server before the deadline may still arrive.
    for (int i = 0; i < 20; ++i) {
      Bytes got;
      const GetResult get = GetOne(*direct, key, size, &got);
      ASSERT_THAT(get.outcome, AnyOf(GetOutcome::kHit, GetOutcome::kMiss));
      if (get.outcome == GetOutcome::kHit) {
        EXPECT_TRUE(got == sent);
      }
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
}

TEST_F(RedisFaultTest, CancellingEndsACallThatWaits) {
  const auto store = OpenStoreAt(proxy_.url());
  Store(*store, "emb_x", PayloadOf("x", 100));
  proxy_.swallow_replies = true;
  std::atomic<bool> cancelled = false;
  CallContext context;
  context.cancelled = &cancelled;
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      Bytes got;
      EXPECT_EQ(GetOne(*store, "emb_x", 100, &got, context).status.code(), StatusCode::kCancelled);
    });
  }
  std::this_thread::sleep_for(milliseconds(30));
  cancelled = true;
  for (std::thread& caller : callers) caller.join();
}

TEST_F(RedisFaultTest, ASlowServerDelaysNobodyBeyondTheDeadline) {
  const auto store = OpenStoreAt(proxy_.url());
  const Bytes bytes = PayloadOf("x", kLarge);
  Store(*store, "emb_x", bytes);
  proxy_.bytes_per_second = 1'000'000;
  Bytes got;
  EXPECT_EQ(GetOne(*store, "emb_x", kLarge, &got, Within(milliseconds(100))).status.code(),
            StatusCode::kDeadlineExceeded);
  const GetResult slow = GetOne(*store, "emb_x", kLarge, &got, Within(seconds(60)));
  EXPECT_EQ(slow.outcome, GetOutcome::kHit)
      << "a megabyte a second is slow, and works: " << slow.status.ToString();
  EXPECT_TRUE(got == bytes);
}

TEST_F(RedisFaultTest, RepliesInPiecesOfAFewBytesAreWhole) {
  const auto store = OpenStoreAt(proxy_.url());
  const Bytes bytes = PayloadOf("x", 3000);
  Store(*store, "emb_x", bytes);
  for (const int64_t piece : {1, 2, 3, 7, 48, 57}) {
    proxy_.reply_piece = piece;
    ExpectHitInTheEnd(*store, "emb_x", bytes);
  }
}

TEST_F(RedisFaultTest, ConnectionsThatAreResetAllTheTimeGiveWholeObjectsOrFailures) {
  const auto direct = OpenStoreAt(server_.url());
  const auto store = OpenStoreAt(proxy_.url());
  std::vector<Bytes> payloads;
  for (size_t i = 0; i < 8; ++i) {
    payloads.push_back(PayloadOf(fmt::format("reset_{}", i), i % 2 == 0 ? 40'000 : kLarge));
    Store(*direct, fmt::format("emb_{}", i), payloads.back());
  }
  proxy_.reset = true;
  proxy_.cut_replies_after = 3'000'000;
  proxy_.cut_requests_after = 150'000;
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (size_t i = 0; i < 40; ++i) {
        const size_t object = (i * 3 + thread) % 8;
        ExpectWholeOrFailed(*store, fmt::format("emb_{}", object), payloads[object]);
        const Bytes bytes = PayloadOf(fmt::format("put_{}_{}", thread, i), 30'000);
        PutOne(*store, fmt::format("put_{}_{}", thread, i), bytes, PutMode::kIfAbsent,
               Within(seconds(30)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  proxy_.cut_replies_after = proxy_.cut_requests_after = -1;
  for (size_t thread = 0; thread < 4; ++thread) {
    for (size_t i = 0; i < 40; ++i) {
      const std::string key = fmt::format("put_{}_{}", thread, i);
      Bytes got;
      const GetResult get = GetOne(*direct, key, 30'000, &got);
      if (get.outcome == GetOutcome::kHit) {
        EXPECT_TRUE(got == PayloadOf(key, 30'000));
      }
    }
  }
}

TEST_F(RedisFaultTest, APausedServerTimesOutAndServesAgain) {
  const auto store = OpenStoreAt(server_.url());
  const Bytes bytes = PayloadOf("x", 200'000);
  Store(*store, "emb_x", bytes);
  server_.Pause();
  for (int i = 0; i < 3; ++i) {
    Bytes got;
    EXPECT_EQ(GetOne(*store, "emb_x", bytes.size(), &got, Within(milliseconds(50))).outcome,
              GetOutcome::kFailed);
    EXPECT_EQ(PutOne(*store, "emb_y", bytes, PutMode::kIfAbsent, Within(milliseconds(50))).outcome,
              PutOutcome::kFailed);
  }
  server_.Resume();
  ExpectHitInTheEnd(*store, "emb_x", bytes);
}

TEST_F(RedisFaultTest, AServerThatIsDownAtStartIsNoFailureAndIsUsedOnceItIsUp) {
  server_.Kill();
  const auto store = OpenStoreAt(server_.url());
  Bytes got;
  const GetResult get = GetOne(*store, "emb_x", 10, &got, Within(seconds(30)));
  EXPECT_EQ(get.status.code(), StatusCode::kUnavailable) << get.status.ToString();
  EXPECT_EQ(store->Health().state, StoreState::kDown);
  EXPECT_EQ(PutOne(*store, "emb_x", PayloadOf("x", 10)).status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(StatOne(*store, "emb_x").status.code(), StatusCode::kUnavailable);
  EXPECT_FALSE(store->List("", 10, {}).ok());
  server_.Start();
  Store(*store, "emb_x", PayloadOf("x", 10));
  EXPECT_EQ(store->Health().state, StoreState::kUp);
}

TEST_F(RedisFaultTest, AServerThatRestartsEmptyHasMisses) {
  const auto store = OpenStoreAt(server_.url());
  const Bytes bytes = PayloadOf("x", kLarge);
  Store(*store, "emb_x", bytes);
  server_.Kill();
  server_.Start();
  Bytes got;
  GetResult get;
  do {
    get = GetOne(*store, "emb_x", kLarge, &got);
    ASSERT_THAT(get.outcome, AnyOf(GetOutcome::kMiss, GetOutcome::kFailed));
  } while (get.outcome == GetOutcome::kFailed);
  Store(*store, "emb_x", bytes);
  ExpectHitInTheEnd(*store, "emb_x", bytes);
}

TEST_F(RedisFaultTest, AnIdleStoreNoticesThatItsServerDiedAndCameBack) {
  const auto store = OpenStoreAt(server_.url());
  Store(*store, "emb_x", PayloadOf("x", 10));
  const uint64_t era = store->Era();
  server_.Kill();
  while (store->Health().state != StoreState::kDown) std::this_thread::sleep_for(milliseconds(5));
  server_.Start();
  while (store->Health().state != StoreState::kUp) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_NE(store->Era(), era);
}

TEST_F(RedisFaultTest, AServerThatHangsUpAtOnceIsNotAskedWithoutPause) {
  proxy_.refuse = true;
  const auto store = OpenStoreAt(proxy_.url());
  Bytes got;
  EXPECT_EQ(GetOne(*store, "emb_x", 10, &got).outcome, GetOutcome::kFailed);
  std::this_thread::sleep_for(milliseconds(700));
  EXPECT_LT(proxy_.connections(), 20);
  proxy_.refuse = false;
  Store(*store, "emb_x", PayloadOf("x", 10));
}

TEST_F(RedisFaultTest, AKilledServerFailsCallsInFlightAtOnce) {
  const auto store = OpenStoreAt(server_.url());
  const Bytes bytes = PayloadOf("x", 8 << 20);
  Store(*store, "emb_x", bytes);
  std::vector<std::thread> readers;
  std::atomic<int> failed = 0;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      Bytes got;
      for (;;) {
        const GetResult get = GetOne(*store, "emb_x", bytes.size(), &got);
        if (get.outcome != GetOutcome::kHit) break;
        EXPECT_TRUE(got == bytes);
      }
      ++failed;
    });
  }
  std::this_thread::sleep_for(milliseconds(30));
  server_.Kill();
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(failed, 4);
  server_.Start();
}

TEST(RedisHostTest, AHostThatDoesNotExistIsToldAndIsNoFailureOfTheStart) {
  const auto store = OpenStoreAt("redis://no-such-host.invalid:6379");
  Bytes got;
  const GetResult get = GetOne(*store, "emb_x", 10, &got, Within(seconds(60)));
  EXPECT_EQ(get.status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(get.status.message(), testing::HasSubstr("no-such-host.invalid"));
}

}  // namespace
}  // namespace embercache::redis
