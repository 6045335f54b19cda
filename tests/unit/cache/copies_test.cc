#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/controller_fixture.h"

// Copies into and out of the pool.

namespace embercache {
namespace {

using testing::ElementsAre;

class CopiesTest : public testing::Test {
 protected:
  // Rows of an embedding in memory of the caller's.
  struct Rows {
    Rows(uint64_t tag, uint64_t tokens) : memory(std::make_shared<Bytes>(tokens * kTestRowBytes)) {
      const MutableBuffer buffer = *memory;
      FillWith(tag, std::span(&buffer, 1));
    }
    PoolItem Item(uint64_t tag) const {
      return {.key = TestKey(tag),
              .rows = *memory,
              .tokens = memory->size() / kTestRowBytes,
              .metadata = "m",
              .owner = memory};
    }
    std::shared_ptr<Bytes> memory;
  };

  CopyHandle Store(std::vector<PoolItem> items) {
    return node_.controller->StoreToPoolAsync(TestSpec(), std::move(items));
  }
  std::vector<CopyOutcome> Wait(const CopyHandle& handle) {
    return EmbeddingCacheController::WaitCopies(handle,
                                                SteadyClock().Now() + std::chrono::seconds(100));
  }

  std::shared_ptr<EmbeddingStore> store_ = NewMemoryStore();
  LogCapture log_;
  Node node_{store_};
};

TEST_F(CopiesTest, WhatIsCopiedInIsReadyPinnedByTheHandleAndPublished) {
  const Rows one(1, 4), two(2, Node::kRowsAPage + 1);
  CopyHandle handle = Store({one.Item(1), two.Item(2)});
  EXPECT_THAT(Wait(handle), ElementsAre(CopyOutcome::kCopied, CopyOutcome::kCopied));
  EXPECT_EQ(node_.Pool().pinned_entries, 2U);
  std::vector<Pin> views =
      node_.controller->GetPoolViews(std::vector<EmbeddingKey>{TestKey(1), TestKey(3), TestKey(2)});
  ASSERT_EQ(views.size(), 3U);
  EXPECT_TRUE(Holds(1, views[0], 4));
  EXPECT_EQ(views[0].info().metadata, "m");
  EXPECT_FALSE(views[1]);
  EXPECT_TRUE(Holds(2, views[2], Node::kRowsAPage + 1));
  views.clear();
  handle.reset();
  EXPECT_EQ(node_.Pool().pinned_entries, 0U);
  EXPECT_EQ(node_.Insert({1, 2}).new_count, 2U);
  node_.Settle();
  Node other(store_);
  EXPECT_TRUE(Holds(2, other.LookupOne(2).pin, Node::kRowsAPage + 1));
}

TEST_F(CopiesTest, EachItemEndsInItsOutcome) {
  node_.Encode(1, 4).Release();
  Claim filling = std::move(node_.LookupOne(2).claim);
  const Rows one(1, 4), two(2, 4), wrong(3, 4), fine(4, 4);
  PoolItem narrow = wrong.Item(3);
  narrow.tokens = 3;
  PoolItem none = wrong.Item(3);
  none.tokens = 0;
  const CopyHandle handle = Store({one.Item(1), two.Item(2), narrow, none, fine.Item(4)});
  EXPECT_THAT(Wait(handle),
              ElementsAre(CopyOutcome::kPresent, CopyOutcome::kJoined, CopyOutcome::kFailed,
                          CopyOutcome::kFailed, CopyOutcome::kCopied));
  EXPECT_FALSE(node_.controller->HasLocalEmbedding(TestKey(3)));
  filling.Abort(Status::Cancelled("enough"));
  EXPECT_EQ(node_.Pool().filling_entries, 0U);
}

TEST_F(CopiesTest, WithoutPagesNothingIsCopied) {
  std::vector<Pin> pins;
  for (uint64_t number = 10; number < 10 + Node::kPages; ++number) {
    pins.push_back(node_.Encode(number, 4));
  }
  const Rows one(1, 4);
  EXPECT_THAT(Wait(Store({one.Item(1)})), ElementsAre(CopyOutcome::kNoRoom));
  EXPECT_EQ(node_.Pool().filling_entries, 0U);
  EXPECT_EQ(node_.Arena().free, node_.Arena().pages);
}

TEST_F(CopiesTest, MemoryIsOwnedUntilTheCopyIsOverWhateverBecomesOfTheHandle) {
  auto rows = std::make_unique<Rows>(1, 4);
  std::weak_ptr<Bytes> memory = rows->memory;
  (void)Store({rows->Item(1)});
  rows.reset();
  const TimePoint limit = SteadyClock().Now() + std::chrono::seconds(100);
  while (!memory.expired() && SteadyClock().Now() < limit) std::this_thread::yield();
  EXPECT_TRUE(memory.expired());
  EXPECT_TRUE(Holds(1, node_.controller->TryPin(TestKey(1)), 4));
}

TEST_F(CopiesTest, AReadyEmbeddingIsCopiedOut) {
  node_.Encode(1, Node::kRowsAPage + 3).Release();
  Bytes destination((Node::kRowsAPage + 3) * kTestRowBytes);
  const auto load = [&](uint64_t number, size_t bytes) {
    return Wait(node_.controller->LoadToDeviceAsync(
        TestKey(number), MutableBuffer(destination).first(bytes), nullptr));
  };
  EXPECT_THAT(load(1, destination.size()), ElementsAre(CopyOutcome::kCopied));
  const ConstBuffer copied = destination;
  EXPECT_TRUE(Holds(1, std::span(&copied, 1)));
  EXPECT_THAT(load(1, destination.size() - 1), ElementsAre(CopyOutcome::kFailed));
  EXPECT_THAT(load(2, destination.size()), ElementsAre(CopyOutcome::kMissing));
  EXPECT_EQ(node_.Pool().pinned_entries, 0U);
}

TEST_F(CopiesTest, AfterCloseCopiesFailAtOnceAndLeaveNothingFilling) {
  node_.Encode(1, 4).Release();
  (void)node_.controller->Close(SteadyClock().Now() + std::chrono::seconds(100));
  const Rows two(2, 4);
  EXPECT_THAT(Wait(Store({two.Item(2)})), ElementsAre(CopyOutcome::kFailed));
  Bytes destination(4 * kTestRowBytes);
  EXPECT_THAT(Wait(node_.controller->LoadToDeviceAsync(TestKey(1), destination, nullptr)),
              ElementsAre(CopyOutcome::kFailed));
  EXPECT_EQ(node_.Pool().filling_entries, 0U);
  EXPECT_EQ(node_.Pool().pinned_entries, 0U);
}

}  // namespace
}  // namespace embercache
