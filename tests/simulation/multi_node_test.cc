// What one node has, all nodes get, also after the store lost it: two nodes with real threads over
// one store.

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "src/base/log.h"
#include "src/store/file/file_store.h"
#include "src/store/memory/memory_store.h"
#include "tests/conformance/temp_folder.h"
#include "tests/simulation/real_node.h"

namespace embercache::simulation {
namespace {

class MultiNodeTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(SetLogLevel("error").ok());
    store_ = GetParam() == "file"
                 ? CreateFileStore({.json = R"({"dir":")" + folder_.path() + R"("})"}).value()
                 : CreateMemoryStore({}).value();
    // Nodes close the shared store only when nobody else has it.
    a_ = std::make_unique<RealNode>(store_);
    b_ = std::make_unique<RealNode>(store_);
  }

  void Lose(const Media& media) {
    const std::string key = media.key.Text();
    const RemoveItem item{.key = key};
    ASSERT_EQ(store_->BatchRemove(std::span(&item, 1), {}).front().outcome,
              RemoveOutcome::kRemoved);
  }
  // Puts the item into the store from a third node, which goes away.
  void PutIntoStore(const Media& media) {
    RealNode other(store_);
    (void)other.Have(media);
    EXPECT_EQ(other.Publish(media).new_count, 1U);
  }
  void ExpectGlobalHit(RealNode& node, const Media& media) {
    const LookupAnswer answer = node.Lookup(media);
    ASSERT_TRUE(answer.pin) << "a miss";
    EXPECT_EQ(answer.source, Source::kGlobal);
    EXPECT_EQ(CheckPin(media, answer.pin), "");
  }

  TempFolder folder_;
  std::shared_ptr<EmbeddingStore> store_;
  std::unique_ptr<RealNode> a_;
  std::unique_ptr<RealNode> b_;
  const Media media_ = MediaOf("photo", 1, 300);
};

TEST_P(MultiNodeTest, WhatOneNodeComputedTheOtherHits) {
  (void)a_->Have(media_);
  EXPECT_EQ(a_->Publish(media_).new_count, 1U);
  ExpectGlobalHit(*b_, media_);
  EXPECT_EQ(a_->computed, 1U);
}

TEST_P(MultiNodeTest, ALocalHitIsPublishedAgainAfterTheStoreLostIt) {
  (void)a_->Have(media_);
  (void)a_->Publish(media_);
  Lose(media_);
  EXPECT_EQ(a_->Have(media_), Source::kLocal);
  const InsertResult again = a_->Publish(media_);
  EXPECT_EQ(again.new_count, 0U);
  EXPECT_EQ(again.local_hit_count, 1U);
  EXPECT_EQ(again.skipped_count, 0U);
  ExpectGlobalHit(*b_, media_);
}

TEST_P(MultiNodeTest, WhatCameFromTheStoreIsPublishedAgainByTheNodeThatGotIt) {
  PutIntoStore(media_);
  ExpectGlobalHit(*a_, media_);
  Lose(media_);
  EXPECT_EQ(a_->Publish(media_).local_hit_count, 1U);
  ExpectGlobalHit(*b_, media_);
}

TEST_P(MultiNodeTest, NothingIsPublishedWhileThePrefetchOfItIsUnfinished) {
  PutIntoStore(media_);
  a_->store->Inject({.op = StoreOp::kGet, .kind = FaultKind::kHang});
  ASSERT_TRUE(a_->Prefetch("request", media_).ok());
  ASSERT_TRUE(a_->store->WaitUntilHanging(1, SteadyClock().Now() + kPatience));

  const InsertResult early = a_->Insert(media_);
  EXPECT_EQ(early.skipped_count, 1U);
  EXPECT_EQ(a_->store->Seen(StoreOp::kPut), 0U);

  a_->store->Clear();
  EXPECT_EQ(a_->WaitPrefetch("request"), PrefetchOutcome::kGlobal);
  Lose(media_);
  EXPECT_EQ(a_->Publish(media_).local_hit_count, 1U);
  ExpectGlobalHit(*b_, media_);
}

TEST_P(MultiNodeTest, APrefetchThatTheStoreLostMeanwhileLeavesACleanMissForAll) {
  PutIntoStore(media_);
  a_->store->Inject({.op = StoreOp::kGet, .kind = FaultKind::kHang});
  ASSERT_TRUE(a_->Prefetch("request", media_).ok());
  ASSERT_TRUE(a_->store->WaitUntilHanging(1, SteadyClock().Now() + kPatience));
  Lose(media_);
  a_->store->Clear();
  EXPECT_EQ(a_->WaitPrefetch("request"), PrefetchOutcome::kMissing);
  EXPECT_EQ(a_->Publish(media_).skipped_count, 1U);
  EXPECT_TRUE(b_->Lookup(media_).claim) << "nobody has it";
}

TEST_P(MultiNodeTest, AfterAFailedPrefetchTheRecomputedBytesArePublished) {
  PutIntoStore(media_);
  a_->store->Inject({.op = StoreOp::kGet, .kind = FaultKind::kShortRead, .count = 1});
  ASSERT_TRUE(a_->Prefetch("request", media_).ok());
  EXPECT_EQ(a_->WaitPrefetch("request"), PrefetchOutcome::kFailed);
  Lose(media_);
  const InsertResult failed = a_->Publish(media_);
  EXPECT_EQ(failed.skipped_count, 1U);
  EXPECT_EQ(a_->store->Seen(StoreOp::kPut), 0U) << "half of a read was published";

  (void)a_->Have(media_);
  EXPECT_EQ(a_->computed, 1U);
  EXPECT_EQ(a_->Publish(media_).new_count, 1U);
  ExpectGlobalHit(*b_, media_);
}

TEST_P(MultiNodeTest, ABadObjectIsReplacedByTheNodeThatFoundIt) {
  a_->store->Inject({.op = StoreOp::kPut, .kind = FaultKind::kShortWrite, .count = 1});
  (void)a_->Have(media_);
  (void)a_->Publish(media_);
  (void)b_->Have(media_);
  EXPECT_EQ(b_->computed, 1U) << "half of an object was served";
  (void)b_->Publish(media_);
  RealNode other(store_);
  ExpectGlobalHit(other, media_);
}

TEST_P(MultiNodeTest, AnEntryStaysWhileItsPublicationIsUnderWayThoughTheCacheIsFull) {
  a_ = std::make_unique<RealNode>(store_, NodeOptions(4));
  (void)a_->Have(media_);  // two pages of four
  a_->store->Inject({.op = StoreOp::kPut, .kind = FaultKind::kHang});
  (void)a_->Insert(media_);
  ASSERT_TRUE(a_->store->WaitUntilHanging(1, SteadyClock().Now() + kPatience));
  for (uint32_t i = 0; i < 8; ++i) (void)a_->Have(MediaOf("other" + std::to_string(i), i, 10));
  EXPECT_TRUE(a_->controller->HasLocalEmbedding(media_.key));
  a_->store->Clear();
  a_->WaitUntilIdle();
  ExpectGlobalHit(*b_, media_);
}

TEST_P(MultiNodeTest, WhatWasEvictedIsSkippedAndIsAMissForAll) {
  a_ = std::make_unique<RealNode>(store_, NodeOptions(4));
  (void)a_->Have(media_);
  for (uint32_t i = 0; i < 4; ++i) (void)a_->Have(MediaOf("other" + std::to_string(i), i, 10));
  EXPECT_FALSE(a_->controller->HasLocalEmbedding(media_.key));
  EXPECT_EQ(a_->Publish(media_).skipped_count, 1U);
  EXPECT_TRUE(b_->Lookup(media_).claim);
}

TEST_P(MultiNodeTest, TheOtherNodeGetsRightBytesOrNoneWhileTheEntryIsBeingEvicted) {
  a_ = std::make_unique<RealNode>(store_, NodeOptions(4));
  std::atomic<bool> stop{false};
  std::thread evictor([&] {
    for (uint32_t i = 0; !stop; ++i)
      (void)a_->Have(MediaOf("other" + std::to_string(i % 6), i % 6, 10));
  });
  for (uint32_t round = 0; round < 100; ++round) {
    const Media media = MediaOf("round" + std::to_string(round), 100 + round, 270);
    (void)a_->Have(media);
    (void)a_->Insert(media);
    const LookupAnswer answer = b_->Lookup(media);
    if (answer.pin) {
      EXPECT_EQ(CheckPin(media, answer.pin), "");
    }
  }
  stop = true;
  evictor.join();
  a_->WaitUntilIdle();
  b_->WaitUntilIdle();
  EXPECT_TRUE(a_->controller->host_cache().CheckInvariants().ok());
  EXPECT_EQ(a_->pool().quarantined, 0U);
  EXPECT_EQ(a_->pool().pinned_entries, 0U);
}

INSTANTIATE_TEST_SUITE_P(Stores, MultiNodeTest, testing::Values("memory", "file"));

}  // namespace
}  // namespace embercache::simulation
