#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/controller_fixture.h"

namespace embercache {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

class PrefetchTest : public testing::Test {
 protected:
  void Store(uint64_t number, uint64_t tokens) {
    WriteObject(*store_, TestKey(number), MakeObject(number, TestInfo(number, tokens)));
  }
  PrefetchState State(const std::string& request = "r") const {
    return node_.controller->CheckPrefetchProgress(request);
  }
  std::vector<PrefetchOutcome> Outcomes(const std::string& request = "r") const {
    return node_.controller->PrefetchOutcomes(request);
  }

  std::shared_ptr<EmbeddingStore> store_ = NewMemoryStore();
  LogCapture log_;
  Node node_{store_};
};

TEST_F(PrefetchTest, MixedKeysEndEachInTheirOutcomeAndWhatIsReadyIsPinned) {
  Store(2, 4);
  node_.Encode(1, 4).Release();
  Claim elsewhere = std::move(node_.LookupOne(3, 4).claim);
  ASSERT_TRUE(node_
                  .Prefetch("r", {{TestKey(1), 4},
                                  {TestKey(2), -1},
                                  {TestKey(3), 4},
                                  {TestKey(4), 4},
                                  {TestKey(2), 4},
                                  {TestKey(4), 4}})
                  .ok());
  EXPECT_EQ(State(), PrefetchState::kPending);
  node_.Settle();
  EXPECT_EQ(State(), PrefetchState::kPending) << "one is still computed elsewhere";
  EXPECT_THAT(Outcomes(), ElementsAre(PrefetchOutcome::kLocal, PrefetchOutcome::kGlobal,
                                      PrefetchOutcome::kPending, PrefetchOutcome::kMissing,
                                      PrefetchOutcome::kJoined, PrefetchOutcome::kMissing));
  node_.Compute(std::move(elsewhere), 3, 4);
  EXPECT_EQ(State(), PrefetchState::kDone);
  EXPECT_EQ(Outcomes()[2], PrefetchOutcome::kJoined);
  EXPECT_EQ(node_.Pool().pinned_entries, 3U);
  EXPECT_EQ(node_.Pool().filling_entries, 0U) << "a miss leaves nothing filling";
  // Its own misses cannot evict its hits.
  for (uint64_t number = 10; number < 30; ++number) node_.Encode(number, 4).Release();
  for (const uint64_t number : {1U, 2U, 3U}) {
    EXPECT_TRUE(node_.controller->HasLocalEmbedding(TestKey(number)));
  }
  EXPECT_TRUE(node_.controller->ReleaseRequest("r").ok());
  EXPECT_EQ(node_.Pool().pinned_entries, 0U);
  EXPECT_EQ(node_.controller->ReleaseRequest("r").code(), StatusCode::kNotFound);
  EXPECT_EQ(State(), PrefetchState::kDone);
  EXPECT_THAT(Outcomes(), IsEmpty());
}

TEST_F(PrefetchTest, WhatIsNotHereIsFetchedInOneGet) {
  for (const uint64_t number : {1U, 2U, 3U}) Store(number, 4);
  ASSERT_TRUE(node_.Prefetch("r", {{TestKey(1), 4}, {TestKey(2), 4}, {TestKey(3), 4}}).ok());
  EXPECT_EQ(node_.get->size(), 1U);
  node_.Settle();
  EXPECT_EQ(State(), PrefetchState::kDone);
  EXPECT_THAT(Outcomes(), testing::Each(PrefetchOutcome::kGlobal));
  EXPECT_THAT(log_.Take("Multi-Level"), IsEmpty()) << "BatchIsExist has logged it";
}

TEST_F(PrefetchTest, ARequestIsKnownOnceUntilItIsReleased) {
  ASSERT_TRUE(node_.Prefetch("r", {{TestKey(1), 4}}).ok());
  EXPECT_EQ(node_.Prefetch("r", {{TestKey(1), 4}}).code(), StatusCode::kAlreadyExists);
  node_.Settle();
  EXPECT_EQ(node_.Prefetch("r", {{TestKey(1), 4}}).code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(node_.controller->ReleaseRequest("r").ok());
  EXPECT_TRUE(node_.Prefetch("r", {{TestKey(1), 4}}).ok());
  EXPECT_EQ(State("unknown"), PrefetchState::kDone);
}

TEST_F(PrefetchTest, AnEmptyRequestIsDone) {
  ASSERT_TRUE(node_.Prefetch("r", {}).ok());
  EXPECT_EQ(State(), PrefetchState::kDone);
  EXPECT_TRUE(node_.controller->ReleaseRequest("r").ok());
}

TEST_F(PrefetchTest, AStoreThatFailsAtOnceIsDoneWithFailures) {
  node_.faults->Inject({.op = StoreOp::kGet, .kind = FaultKind::kError});
  ASSERT_TRUE(node_.Prefetch("r", {{TestKey(1), 4}}).ok());
  node_.Settle();
  EXPECT_EQ(State(), PrefetchState::kDone);
  EXPECT_THAT(Outcomes(), ElementsAre(PrefetchOutcome::kFailed));
}

TEST_F(PrefetchTest, AHangingStoreExpiresTheRequestAtTheLookupTimeout) {
  Store(1, 4);
  node_.faults->Inject({.op = StoreOp::kGet, .kind = FaultKind::kHang, .count = 1});
  ASSERT_TRUE(node_.Prefetch("r", {{TestKey(1), 4}}).ok());
  std::thread worker([&] { node_.get->RunAll(); });
  ASSERT_TRUE(node_.faults->WaitUntilHanging(1, SteadyClock().Now() + seconds(100)));
  node_.Advance(milliseconds(499));
  EXPECT_EQ(State(), PrefetchState::kPending);
  node_.Advance(milliseconds(1));
  EXPECT_EQ(State(), PrefetchState::kExpired);
  EXPECT_THAT(Outcomes(), ElementsAre(PrefetchOutcome::kFailed));
  EXPECT_EQ(node_.Pool().quarantined, 1U);
  EXPECT_EQ(node_.Pool().filling_entries, 0U) << "it can be looked up again";
  const Pin pin = std::move(node_.LookupOne(1, 4).pin);
  node_.faults->Clear();
  worker.join();
  EXPECT_EQ(node_.Pool().quarantined, 0U);
  EXPECT_TRUE(Holds(1, pin, 4));
}

TEST_F(PrefetchTest, AJoinedItemWhoseLeaderIsSlowExpiresTheRequest) {
  Claim elsewhere = std::move(node_.LookupOne(1, 4).claim);
  ASSERT_TRUE(node_.Prefetch("r", {{TestKey(1), 4}}).ok());
  node_.Advance(milliseconds(500));
  EXPECT_EQ(State(), PrefetchState::kExpired);
  EXPECT_THAT(Outcomes(), ElementsAre(PrefetchOutcome::kFailed));
  node_.Compute(std::move(elsewhere), 1, 4);
  EXPECT_EQ(node_.Pool().pinned_entries, 0U);
}

TEST_F(PrefetchTest, AnItemWithoutRoomIsReported) {
  Store(1, 4);
  std::vector<Pin> pins;
  for (uint64_t number = 10; number < 10 + Node::kPages; ++number) {
    pins.push_back(node_.Encode(number, 4));
  }
  std::vector<Claim> arena;
  for (uint64_t number = 30; number < 46; ++number) {
    arena.push_back(std::move(node_.LookupOne(number).claim));
    ASSERT_TRUE(arena.back().Reserve(kTestRowBytes, 0).ok());
  }
  ASSERT_TRUE(node_.Prefetch("r", {{TestKey(1), 4}, {TestKey(1), -1}, {TestKey(10), 4}}).ok());
  node_.Settle();
  EXPECT_EQ(State(), PrefetchState::kDone);
  EXPECT_EQ(Outcomes()[0], PrefetchOutcome::kNoRoom);
  EXPECT_EQ(Outcomes()[2], PrefetchOutcome::kLocal);
}

TEST_F(PrefetchTest, WhatGetsNoPagesIsNotReadyThoughTheArenaHadRoom) {
  Store(1, 4);
  std::vector<Pin> pins;
  for (uint64_t number = 10; number < 10 + Node::kPages; ++number) {
    pins.push_back(node_.Encode(number, 4));
  }
  ASSERT_TRUE(node_.Prefetch("r", {{TestKey(1), 4}}).ok());
  node_.Settle();
  EXPECT_THAT(Outcomes(), ElementsAre(PrefetchOutcome::kNoRoom));
  EXPECT_FALSE(node_.controller->host_cache().Contains(TestKey(1)));
  pins.clear();
  ASSERT_TRUE(node_.controller->ReleaseRequest("r").ok());
  ASSERT_TRUE(node_.Prefetch("r", {{TestKey(1), 4}}).ok());
  node_.Settle();
  EXPECT_THAT(Outcomes(), ElementsAre(PrefetchOutcome::kGlobal));
}

TEST_F(PrefetchTest, PinsThatComeAfterTheReleaseAreGivenBackAtOnce) {
  Store(1, 4);
  ASSERT_TRUE(node_.Prefetch("r", {{TestKey(1), 4}}).ok());
  EXPECT_TRUE(node_.controller->ReleaseRequest("r").ok());
  node_.Settle();
  EXPECT_TRUE(node_.controller->HasLocalEmbedding(TestKey(1))) << "it was fetched all the same";
  EXPECT_EQ(node_.Pool().pinned_entries, 0U);
  EXPECT_EQ(node_.timer->size(), 0U);
}

TEST_F(PrefetchTest, PinsThatNobodyReleasesAreGivenBackAfterTheirTime) {
  node_.Encode(1, 4).Release();
  ASSERT_TRUE(node_.Prefetch("r", {{TestKey(1), 4}}).ok());
  node_.Advance(minutes(10) - milliseconds(1));
  EXPECT_EQ(node_.Pool().pinned_entries, 1U);
  log_.Take("");
  node_.Advance(milliseconds(1));
  EXPECT_EQ(node_.Pool().pinned_entries, 0U);
  EXPECT_EQ(log_.Take("request 'r'").size(), 1U);
  EXPECT_EQ(node_.controller->ReleaseRequest("r").code(), StatusCode::kNotFound);
  EXPECT_TRUE(node_.Prefetch("r", {{TestKey(1), 4}}).ok());
}

TEST_F(PrefetchTest, TheEndOfAnOldRequestLeavesANewerOneOfItsNameAlone) {
  Store(1, 4);
  node_.Encode(2, 4).Release();
  // The old one is released while its fetch is still under way, so it lives on.
  ASSERT_TRUE(node_.Prefetch("r", {{TestKey(1), 4}}).ok());
  EXPECT_TRUE(node_.controller->ReleaseRequest("r").ok());
  node_.Advance(minutes(5));
  ASSERT_TRUE(node_.Prefetch("r", {{TestKey(2), 4}}).ok());
  node_.Advance(minutes(6));
  EXPECT_EQ(node_.Pool().pinned_entries, 1U);
  EXPECT_TRUE(node_.controller->ReleaseRequest("r").ok());
}

TEST_F(PrefetchTest, CloseGivesTheRequestsPinsBack) {
  node_.Encode(1, 4).Release();
  ASSERT_TRUE(node_.Prefetch("r", {{TestKey(1), 4}}).ok());
  EXPECT_EQ(node_.Pool().pinned_entries, 1U);
  EXPECT_TRUE(node_.controller->Close(node_.clock.Now()).ok());
  EXPECT_EQ(node_.Pool().pinned_entries, 0U);
}

TEST_F(PrefetchTest, ManyRequestsEndWithoutAPin) {
  uint64_t random = 3;
  const auto next = [&](uint64_t below) {
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    return (random >> 33) % below;
  };
  for (uint64_t number = 0; number < 6; ++number) Store(number, 4);
  std::vector<std::string> open;
  for (int step = 0; step < 3000; ++step) {
    if (next(2) == 0) {
      const std::string name = std::to_string(step);
      std::vector<LookupItem> items;
      for (uint64_t i = next(4); i > 0; --i) {
        items.push_back({TestKey(next(9)), next(2) == 0 ? -1 : 4});
      }
      ASSERT_TRUE(node_.Prefetch(name, items).ok());
      open.push_back(name);
    } else if (!open.empty()) {
      const auto victim = open.begin() + static_cast<std::ptrdiff_t>(next(open.size()));
      ASSERT_TRUE(node_.controller->ReleaseRequest(*victim).ok());
      open.erase(victim);
    }
    if (next(3) == 0) node_.Settle();
    node_.Check();
  }
  node_.Settle();
  for (const std::string& name : open) EXPECT_TRUE(node_.controller->ReleaseRequest(name).ok());
  EXPECT_EQ(node_.Pool().pinned_entries, 0U);
  EXPECT_EQ(node_.Pool().filling_entries, 0U);
}

TEST_F(PrefetchTest, ACompletionCanBeWaitedFor) {
  Store(1, 4);
  ASSERT_TRUE(node_.Prefetch("r", {{TestKey(1), 4}}).ok());
  EXPECT_EQ(node_.controller->WaitPrefetch("r", SteadyClock().Now()), PrefetchState::kPending);
  std::thread worker([&] {
    std::this_thread::sleep_for(milliseconds(10));
    node_.get->RunAll();
  });
  EXPECT_EQ(node_.controller->WaitPrefetch("r", SteadyClock().Now() + seconds(100)),
            PrefetchState::kDone);
  worker.join();
}

}  // namespace
}  // namespace embercache
