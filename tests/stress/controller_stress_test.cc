#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "embercache/controller.h"
#include "src/cache/host_cache.h"
#include "src/store/faulty_store.h"
#include "src/store/memory/memory_store.h"
#include "tests/support/test_embeddings.h"

// Two nodes with threads of their own before one faulty store, and callers on many threads.

namespace embercache {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kKeys = 20;

TimePoint In(Duration time) {
  return SteadyClock().Now() + time;
}

struct RealNode {
  explicit RealNode(std::shared_ptr<EmbeddingStore> store)
      : faults(std::make_shared<FaultyStore>(std::move(store), /*seed=*/7)) {
    ControllerOptions options;
    options.max_pool_bytes = 10 * (PageBytesFor(kTestRowBytes) + kBlockBytes) + 1000;
    options.pools = {{.modality = Modality::kImage, .row_bytes = kTestRowBytes}};
    options.max_uncached_bytes = 16 * (uint64_t{68} << 10);
    options.prefault = false;
    options.lookup_timeout = milliseconds(20);
    options.publish_confirm = milliseconds(5);
    controller = EmbeddingCacheController::Create(options, {.store = faults}).value();
  }

  std::shared_ptr<FaultyStore> faults;
  std::unique_ptr<EmbeddingCacheController> controller;
};

// What one caller does with the answer of one item.
void Use(uint64_t key, LookupAnswer answer, std::atomic<int>* answered) {
  const uint64_t tokens = 1 + key % 5;
  if (answer.pin) {
    EXPECT_TRUE(Holds(key, answer.pin, tokens)) << "wrong bytes for key " << key;
  } else if (answer.claim && answer.claim.Reserve(tokens * kTestRowBytes, 0).ok()) {
    FillWith(key, answer.claim.buffers());
    EXPECT_TRUE(answer.claim.Commit(tokens, "").ok());
  }
  answered->fetch_add(1);
}

void Ask(RealNode& node, std::mt19937_64& random, std::atomic<int>* asked,
         std::atomic<int>* answered) {
  std::vector<LookupItem> items;
  std::vector<uint64_t> keys;
  for (uint64_t i = 1 + random() % 4; i > 0; --i) {
    keys.push_back(random() % kKeys);
    const uint64_t tokens = 1 + keys.back() % 5;
    items.push_back({TestKey(keys.back()), random() % 2 == 0 ? static_cast<int64_t>(tokens) : -1});
  }
  asked->fetch_add(static_cast<int>(items.size()));
  node.controller->Lookup(TestSpec(), items, In(milliseconds(10)), In(milliseconds(30)),
                          [keys, answered](size_t index, LookupAnswer answer) {
                            Use(keys[index], std::move(answer), answered);
                          });
}

void OneStep(RealNode& node, std::mt19937_64& random, const std::string& name,
             std::atomic<int>* asked, std::atomic<int>* answered) {
  const EmbeddingKey key = TestKey(random() % kKeys);
  switch (random() % 8) {
    case 0: {
      const LookupItem items[] = {{key, -1}, {TestKey(random() % kKeys), -1}};
      EXPECT_TRUE(node.controller->Prefetch(name, TestSpec(), items).ok());
      (void)node.controller->WaitPrefetch(name, In(milliseconds(random() % 30)));
      EXPECT_TRUE(node.controller->ReleaseRequest(name).ok());
      break;
    }
    case 1:
      node.controller->Remove(key, In(milliseconds(10)), [](RemoveResult) {});
      break;
    case 2:
    case 3:
      (void)node.controller->InsertBatch(std::vector<EmbeddingKey>{key, TestKey(random() % kKeys)});
      break;
    case 4:
      (void)node.controller->Stats();
      break;
    default:
      Ask(node, random, asked, answered);
  }
}

TEST(ControllerStressTest, NodesOverAFaultyStoreAnswerEverythingAndServeNoWrongByte) {
  const std::shared_ptr<EmbeddingStore> store = CreateMemoryStore({}).value();
  RealNode nodes[2] = {RealNode(store), RealNode(store)};
  for (RealNode& node : nodes) {
    for (const StoreOp op : {StoreOp::kStat, StoreOp::kGet, StoreOp::kPut, StoreOp::kRemove}) {
      for (const FaultKind kind : {FaultKind::kThrow, FaultKind::kError, FaultKind::kFlipByte,
                                   FaultKind::kFewResults, FaultKind::kShortRead}) {
        node.faults->Inject({.op = op, .kind = kind, .probability = 0.01});
      }
      node.faults->Inject(
          {.op = op, .kind = FaultKind::kDelay, .probability = 0.02, .delay = milliseconds(15)});
    }
  }
  std::atomic<int> asked{0}, answered{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (int i = 0; i < 400; ++i) {
        OneStep(nodes[random() % 2], random, std::to_string(t) + "/" + std::to_string(i), &asked,
                &answered);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (RealNode& node : nodes) {
    EXPECT_TRUE(node.controller->Close(In(seconds(100))).ok());
  }
  const TimePoint limit = In(seconds(100));
  while (answered.load() < asked.load() && SteadyClock().Now() < limit) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(answered.load(), asked.load());
  for (RealNode& node : nodes) {
    const Status status = node.controller->host_cache().CheckInvariants();
    EXPECT_TRUE(status.ok()) << status.ToString();
    const ControllerStats stats = node.controller->Stats();
    EXPECT_EQ(stats.pools[0].pinned_entries, 0U);
    EXPECT_EQ(stats.pools[0].filling, 0U);
    EXPECT_EQ(stats.pools[0].quarantined, 0U);
    EXPECT_EQ(stats.pools[1].free, stats.pools[1].pages);
  }
}

TEST(ControllerStressTest, NodesThatCloseAmidHangingCallsLeaveNothingBehindOnceThoseReturn) {
  for (uint64_t round = 0; round < 20; ++round) {
    RealNode node(CreateMemoryStore({}).value());
    node.faults->Inject({.op = StoreOp::kGet, .kind = FaultKind::kHang, .probability = 0.3});
    node.faults->Inject({.op = StoreOp::kPut, .kind = FaultKind::kHang, .probability = 0.3});
    std::atomic<int> asked{0}, answered{0};
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937_64 random(round * 10 + t);
        for (int i = 0; i < 30; ++i) {
          OneStep(node, random, std::to_string(t) + "/" + std::to_string(i), &asked, &answered);
        }
      });
    }
    // The names of Prefetch's requests go with Close, so callers end first.
    for (std::thread& thread : threads) thread.join();
    (void)node.controller->Close(In(Duration::zero()));
    node.controller.reset();
    node.faults->Clear();
    const TimePoint limit = In(seconds(100));
    while (answered.load() < asked.load() && SteadyClock().Now() < limit) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_EQ(answered.load(), asked.load());
  }
}

}  // namespace
}  // namespace embercache
