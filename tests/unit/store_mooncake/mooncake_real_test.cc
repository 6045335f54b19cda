// The backend on the real thing: a master, an owner of a segment, and clients by the Python wheel,
// or by the C library "Slow" in a name: it waits for time-outs of Mooncake, and runs by `make
// test-mooncake`.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "embercache/digest.h"
#include "src/cache/byte_store.h"
#include "tests/conformance/conformance_gtest.h"
#include "tests/conformance/payload.h"
#include "tests/support/wait_until.h"
#include "tests/unit/store_mooncake/mooncake_cluster.h"
#include "tests/unit/store_mooncake/mooncake_under_test.h"
#include "tests/unit/store_mooncake/shared_memory.h"

namespace embercache {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kMiB = 1 << 20;

// One for all conformance checks.
std::unique_ptr<MooncakeCluster>& SharedCluster() {
  static std::unique_ptr<MooncakeCluster> cluster;
  return cluster;
}

class OnCluster : public testing::Environment {
 public:
  void TearDown() override { SharedCluster().reset(); }
};

StoreUnderTest MakeReal() {
  if (SharedCluster() == nullptr) {
    // What has been read is removed when its lease is over: the checks would wait for 10 s each.
    const MooncakeCluster::Options options = {.lease_ms = "1000"};
    SharedCluster() = std::make_unique<MooncakeCluster>(options);
  }
  return MooncakeUnderTest([] { return SharedCluster()->Open(); });
}

INSTANTIATE_TEST_SUITE_P(Mooncake, StoreConformanceTest, ConformanceOf("mooncake", MakeReal),
                         ConformanceTestName);

class MooncakeTest : public testing::Test {
 protected:
  // Only one cluster at a time has the ports.
  void Start(const MooncakeCluster::Options& options) {
    SharedCluster().reset();
    cluster_ = std::make_unique<MooncakeCluster>(options);
    auto opened = cluster_->Open();
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    store_ = std::move(*opened);
  }
  void Start() { Start({}); }
  void TearDown() override {
    store_.reset();
    cluster_.reset();
  }

  PutOutcome Put(const std::string& key, size_t bytes = kMiB) {
    return PutOne(*store_, key, PayloadOf(key, bytes)).outcome;
  }
  // Whether it is a hit. A hit with wrong bytes fails the test.
  bool Hits(const std::string& key, size_t bytes = kMiB) {
    Bytes got;
    const GetResult get = GetOne(*store_, key, bytes, &got);
    if (get.outcome != GetOutcome::kHit) return false;
    EXPECT_TRUE(got == PayloadOf(key, bytes)) << key << " comes back changed";
    return true;
  }
  bool PutsAndHits(const std::string& key) {
    return Put(key) == PutOutcome::kAccepted && Hits(key);
  }
  // The store serves again, by itself: new objects become hits.
  void ExpectRecovery(const std::string& name) {
    int round = 0;
    EXPECT_TRUE(WaitUntil([&] { return PutsAndHits(name + std::to_string(round++)); }))
        << store_->Health().detail;
  }

  std::unique_ptr<MooncakeCluster> cluster_;
  std::unique_ptr<EmbeddingStore> store_;
};

TEST_F(MooncakeTest, PagesAndTrailersOfAPoolAreTransferredInPlace) {
  ASSERT_NO_FATAL_FAILURE(Start());
  SharedMemory pool(80 * kMiB);
  ASSERT_TRUE(store_->RegisterBuffer(pool.region()).ok());
  // Scattered, and in all more than the bounce area holds.
  std::vector<ConstBuffer> pages;
  std::vector<MutableBuffer> targets;
  const Bytes payload = PayloadOf("pages", 66 * kMiB);
  for (size_t at = 0; at < payload.size(); at += kMiB / 4) {
    const size_t place = (payload.size() - kMiB / 4 - at) + 4096;
    const MutableBuffer page = pool.memory().subspan(place, kMiB / 4);
    std::copy_n(payload.begin() + static_cast<ptrdiff_t>(at), kMiB / 4, page.begin());
    pages.push_back(page);
    targets.push_back(page);
  }
  const PutItem put{"pages", pages, PutMode::kIfAbsent};
  ASSERT_TRUE(WaitUntil([&] {
    return store_->BatchPutFromMultiBuffers({&put, 1}, {}).at(0).outcome == PutOutcome::kAccepted;
  }));
  std::fill(pool.memory().begin(), pool.memory().end(), std::byte(0));
  const GetItem get{"pages", targets};
  const GetResult got = store_->BatchGetIntoMultiBuffers({&get, 1}, {}).at(0);
  ASSERT_EQ(got.outcome, GetOutcome::kHit) << got.status.ToString();
  for (size_t i = 0; i < targets.size(); ++i) {
    ASSERT_TRUE(std::equal(targets[i].begin(), targets[i].end(),
                           payload.begin() + static_cast<ptrdiff_t>(i * kMiB / 4)));
  }
}

// What SGLang's own MooncakeEmbeddingStore does, in bare calls of the wheel: it reads our object,
// and puts one of its own.
constexpr const char* kSglangNode = R"python(
import ctypes
from mooncake.store import MooncakeDistributedStore

def pattern(size, step):
    return bytes((i * step + 3) % 251 for i in range(size))

store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 16 << 20, "tcp", "", "127.0.0.1:50051") == 0
memory = (ctypes.c_char * (4 << 20))()
base = ctypes.addressof(memory)
assert store.register_buffer(base, 4 << 20) == 0
parts = [[base, base + (1 << 20)]]
sizes = [[1 << 18, 9000]]
assert store.batch_is_exist(["emb_ours"]) == [1]
assert store.batch_get_into_multi_buffers(["emb_ours"], parts, sizes) == [(1 << 18) + 9000]
got = memory[: 1 << 18] + memory[1 << 20 : (1 << 20) + 9000]
assert got == pattern((1 << 18) + 9000, 7)
memory[: 1 << 18] = pattern((1 << 18) + 9000, 11)[: 1 << 18]
memory[1 << 20 : (1 << 20) + 9000] = pattern((1 << 18) + 9000, 11)[1 << 18 :]
assert store.batch_put_from_multi_buffers(["emb_theirs"], parts, sizes) == [0]
)python";

Bytes PatternOf(size_t bytes, size_t step) {
  Bytes pattern(bytes);
  for (size_t i = 0; i < bytes; ++i) pattern[i] = static_cast<std::byte>((i * step + 3) % 251);
  return pattern;
}

TEST_F(MooncakeTest, InRawFormatNodesOfSglangHitOurObjectsAndWeTheirs) {
  constexpr size_t kBytes = (1 << 18) + 9000;
  ASSERT_NO_FATAL_FAILURE(Start());
  auto opened = cluster_->Open(R"(,"format":"raw")");
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  ByteStore raw(std::shared_ptr<EmbeddingStore>(std::move(*opened)), Digest256{});
  EXPECT_EQ(raw.KeyText("ours"), "emb_ours");
  const Bytes ours = PatternOf(kBytes, 7);
  const BytePutItem put{"ours", {ConstBuffer(ours).first(5000), ConstBuffer(ours).subspan(5000)}};
  ASSERT_EQ(raw.Put({&put, 1}, {}).at(0).outcome, PutOutcome::kAccepted);

  ASSERT_EQ(MooncakeCluster::RunPython(kSglangNode), 0);

  Bytes theirs(kBytes);
  const ByteGetItem get{"theirs",
                        {MutableBuffer(theirs).first(100), MutableBuffer(theirs).subspan(100)}};
  EXPECT_EQ(raw.Get({&get, 1}, {}).at(0), GetOutcome::kHit);
  EXPECT_TRUE(theirs == PatternOf(kBytes, 11));
  const ByteGetItem shorter{"theirs", {MutableBuffer(theirs).first(kBytes - 4096)}};
  EXPECT_NE(raw.Get({&shorter, 1}, {}).at(0), GetOutcome::kHit);
}

TEST_F(MooncakeTest, AKilledBridgeIsReplacedAndNothingIsLost) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_EQ(Put("kept"), PutOutcome::kAccepted);
  const uint64_t era = store_->Era();
  const std::string json = store_->DescribeJson();
  const size_t at = json.find("\"bridge_pid\":");
  ASSERT_NE(at, std::string::npos);
  kill(std::stoi(json.substr(at + 13)), SIGKILL);
  EXPECT_TRUE(WaitUntil([&] { return store_->Era() != era; }));
  EXPECT_TRUE(WaitUntil([&] { return Hits("kept"); }));
}

TEST_F(MooncakeTest, AKilledOwnerCostsMissesUntilAnotherIsThere) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_TRUE(PutsAndHits("before"));
  cluster_->KillOwner();
  EXPECT_FALSE(Hits("before"));
  cluster_->StartOwner();
  ExpectRecovery("after");
}

TEST_F(MooncakeTest, ObjectsThatFindNoRoomAreDropped) {
  ASSERT_NO_FATAL_FAILURE(Start({.segment = "64MB", .lease_ms = "600000"}));
  int accepted = 0;
  for (int i = 0; i < 12; ++i) {
    const std::string key = "object" + std::to_string(i);
    if (Put(key, 8 * kMiB) == PutOutcome::kAccepted && Hits(key, 8 * kMiB)) ++accepted;
  }
  // All of them leased, so there is nothing to evict.
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 12);
  EXPECT_TRUE(Hits("object0", 8 * kMiB));
  const PutResult too_large = PutOne(*store_, "too large", PayloadOf("x", 60 * kMiB));
  EXPECT_EQ(too_large.status.code(), StatusCode::kResourceExhausted);
}

TEST_F(MooncakeTest, SlowAMasterThatComesBackEmptyIsServedAgain) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_TRUE(PutsAndHits("before"));
  cluster_->KillMaster();
  EXPECT_FALSE(Hits("before"));
  cluster_->StartMaster();
  ExpectRecovery("after");
  EXPECT_FALSE(Hits("before"));
}

TEST_F(MooncakeTest, SlowAFrozenMasterCostsMissesAndLosesNothing) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_TRUE(PutsAndHits("before"));
  cluster_->Signal(cluster_->master(), SIGSTOP);
  EXPECT_FALSE(Hits("before"));
  cluster_->Signal(cluster_->master(), SIGCONT);
  EXPECT_TRUE(WaitUntil([&] { return Hits("before"); })) << store_->Health().detail;
  ExpectRecovery("after");
}

TEST_F(MooncakeTest, SlowAFrozenOwnerCostsMissesAndServesAgain) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_TRUE(PutsAndHits("before"));
  cluster_->Signal(cluster_->owner(), SIGSTOP);
  EXPECT_FALSE(Hits("before"));
  cluster_->Signal(cluster_->owner(), SIGCONT);
  ExpectRecovery("after");
}

TEST_F(MooncakeTest, SlowAMasterThatStartsLateIsFound) {
  ASSERT_NO_FATAL_FAILURE(Start());
  store_.reset();
  cluster_->KillMaster();
  auto opened = cluster_->OpenAnyway();
  ASSERT_TRUE(opened.ok());
  store_ = std::move(*opened);
  EXPECT_FALSE(Hits("any"));  // at once, and not after the set-up
  EXPECT_TRUE(WaitUntil([&] { return store_->Health().state == StoreState::kDown; }));
  cluster_->StartMaster();
  ExpectRecovery("after");
}

TEST_F(MooncakeTest, SlowBridgesThatAreKilledAllTheTimeGiveWholeObjectsOrFailures) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const TimePoint end = SteadyClock().Now() + seconds(30);
  std::thread killer([&] {
    while (SteadyClock().Now() < end) {
      const std::string json = store_->DescribeJson();
      const int pid = std::stoi(json.substr(json.find("\"bridge_pid\":") + 13));
      if (pid > 0) kill(pid, SIGKILL);
      std::this_thread::sleep_for(milliseconds(700));
    }
  });
  std::vector<std::thread> users;
  for (int user = 0; user < 4; ++user) {
    users.emplace_back([&, user] {
      for (int i = 0; SteadyClock().Now() < end; ++i) {
        const std::string key = "u" + std::to_string(user) + "_" + std::to_string(i % 20);
        Put(key, 3 * kMiB + 17);
        Hits(key, 3 * kMiB + 17);
      }
    });
  }
  killer.join();
  for (std::thread& user : users) user.join();
  ExpectRecovery("after");
}

}  // namespace
}  // namespace embercache

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  embercache::MooncakeCluster::EnterNamespace();
  testing::AddGlobalTestEnvironment(new embercache::OnCluster);
  return RUN_ALL_TESTS();
}
