#include "embercache/controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <thread>

#include "tests/support/controller_fixture.h"

namespace embercache {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ControllerTest : public testing::Test {
 protected:
  // Stores an embedding as another node would have.
  void Store(uint64_t number, uint64_t tokens) {
    WriteObject(*store_, TestKey(number), MakeObject(number, TestInfo(number, tokens)));
  }
  void Lose(uint64_t number) {
    const std::string text = TestKey(number).Text();
    const RemoveItem item{.key = text};
    ASSERT_EQ(store_->BatchRemove(std::span(&item, 1), {}).front().outcome,
              RemoveOutcome::kRemoved);
  }

  std::shared_ptr<EmbeddingStore> store_ = NewMemoryStore();
  LogCapture log_;
  Node node_{store_};
};

TEST_F(ControllerTest, ALookupOfAllKindsAnswersEachItemByItsKind) {
  Store(2, 5);
  node_.Encode(1, 4).Release();
  Claim elsewhere = std::move(node_.LookupOne(3, 4).claim);
  log_.Take("");
  Answers answers(5);
  node_.Lookup({{TestKey(1), 4}, {TestKey(2), -1}, {TestKey(3), 4}, {TestKey(4), 6}, {TestKey(5)}},
               &answers);
  ASSERT_TRUE(answers.has(0)) << "a local hit waits for nothing";
  EXPECT_FALSE(answers.has(1) || answers.has(2) || answers.has(3) || answers.has(4));
  EXPECT_THAT(log_.Take("==="), IsEmpty());
  node_.Settle();
  EXPECT_TRUE(Holds(1, answers[0].pin, 4));
  EXPECT_EQ(answers[0].source, Source::kLocal);
  EXPECT_TRUE(Holds(2, answers[1].pin, 5));
  EXPECT_EQ(answers[1].source, Source::kGlobal);
  EXPECT_TRUE(answers[3].claim);
  EXPECT_TRUE(answers[4].claim);
  EXPECT_FALSE(answers[3].store_failed || answers[3].no_room);
  EXPECT_THAT(log_.Take("==="),
              ElementsAre("=== Multi-Level Cache Check === Total: 5 | Local Hits: 2 | Global Hits: "
                          "1 | Misses (GPU Work): 2"));
  EXPECT_FALSE(answers.has(2)) << "it waits for who computes it";
  node_.Compute(std::move(elsewhere), 3, 4);
  EXPECT_TRUE(Holds(3, answers[2].pin, 4));
  EXPECT_EQ(answers[2].source, Source::kJoined);
  EXPECT_EQ(node_.timer->size(), 0U) << "no timer is left behind";
}

TEST_F(ControllerTest, AKeyThatComesTwiceInOneBatchIsLedOnce) {
  Answers answers(3);
  node_.Lookup({{TestKey(1), 4}, {TestKey(1), 4}, {TestKey(1), -1}}, &answers);
  node_.Settle();
  EXPECT_TRUE(answers[0].claim);
  EXPECT_FALSE(answers.has(1) || answers.has(2));
  EXPECT_THAT(log_.Take("==="),
              ElementsAre("=== Multi-Level Cache Check === Total: 3 | Local Hits: 2 | Global Hits: "
                          "0 | Misses (GPU Work): 1"));
  node_.Compute(std::move(answers[0].claim), 1, 4);
  for (const size_t i : {1U, 2U}) {
    EXPECT_TRUE(Holds(1, answers[i].pin, 4));
    EXPECT_EQ(answers[i].source, Source::kJoined);
  }
  EXPECT_EQ(node_.faults->Seen(StoreOp::kGet), 1U);
}

TEST_F(ControllerTest, AnotherRequestsFetchIsJoined) {
  Store(1, 4);
  Answers first(1), second(1);
  node_.Lookup({{TestKey(1), 4}}, &first);
  node_.Lookup({{TestKey(1), 4}}, &second);
  node_.Settle();
  EXPECT_EQ(first[0].source, Source::kGlobal);
  EXPECT_EQ(second[0].source, Source::kJoined);
  EXPECT_TRUE(Holds(1, second[0].pin, 4));
  EXPECT_EQ(node_.faults->Seen(StoreOp::kGet), 1U);
}

TEST_F(ControllerTest, WhenALeaderFailsItsWaitersAreToldAndOneOfThemLeads) {
  Claim leader = std::move(node_.LookupOne(1).claim);
  Answers waiting(2);
  node_.Lookup({{TestKey(1), 4}, {TestKey(1), 4}}, &waiting);
  leader.Abort(Status::Internal("the encoder fell over"));
  for (const size_t i : {0U, 1U}) {
    EXPECT_EQ(waiting[i].status.code(), StatusCode::kInternal);
    EXPECT_EQ(waiting[i].status.message(), "the encoder fell over");
  }
  Answers again(2);
  node_.Lookup({{TestKey(1), 4}, {TestKey(1), 4}}, &again);
  node_.Settle();
  EXPECT_TRUE(again[0].claim);
  EXPECT_FALSE(again.has(1));
}

TEST_F(ControllerTest, AWaiterIsAnsweredByItsOwnDeadline) {
  Claim leader = std::move(node_.LookupOne(1).claim);
  Answers waiting(1), longer(1);
  node_.Lookup({{TestKey(1), 4}}, &waiting, milliseconds(100));
  node_.Lookup({{TestKey(1), 4}}, &longer, milliseconds(300));
  node_.Advance(milliseconds(99));
  EXPECT_FALSE(waiting.has(0));
  node_.Advance(milliseconds(1));
  EXPECT_EQ(waiting[0].status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(longer.has(0));
  node_.Compute(std::move(leader), 1, 4);
  EXPECT_TRUE(Holds(1, longer[0].pin, 4));
  EXPECT_EQ(node_.timer->size(), 0U);
}

TEST_F(ControllerTest, AWaiterOfARemovedFillIsAnsweredByItsDeadlineToo) {
  Claim leader = std::move(node_.LookupOne(1).claim);
  Answers waiting(1);
  node_.Lookup({{TestKey(1), 4}}, &waiting, milliseconds(100));
  node_.controller->Remove(TestKey(1), node_.clock.Now() + seconds(1), [](RemoveResult) {});
  node_.Advance(milliseconds(100));
  EXPECT_EQ(waiting[0].status.code(), StatusCode::kDeadlineExceeded);
}

TEST_F(ControllerTest, ImpossibleItemsAreRefusedByNumberAndTheOthersGoOn) {
  Answers answers(3);
  node_.Lookup({{TestKey(1), 0}, {TestKey(2), std::numeric_limits<int64_t>::max()}, {TestKey(3)}},
               &answers);
  node_.Settle();
  EXPECT_EQ(answers[0].status.code(), StatusCode::kInvalid);
  EXPECT_THAT(answers[0].status.message(), HasSubstr("item 0: 0 expected tokens; give 1 to"));
  EXPECT_EQ(answers[1].status.code(), StatusCode::kInvalid);
  EXPECT_TRUE(answers[2].claim);
  EmbeddingSpec empty = TestSpec();
  empty.hidden = 0;
  Answers none(1);
  const LookupItem item{TestKey(4), 4};
  node_.controller->Lookup(empty, std::span(&item, 1), node_.clock.Now() + seconds(1),
                           node_.clock.Now() + seconds(1), none.callback());
  EXPECT_EQ(none[0].status.code(), StatusCode::kInvalid);
}

TEST_F(ControllerTest, AnItemThatFailsLeavesTheOthersHits) {
  for (const uint64_t number : {1U, 2U, 3U}) Store(number, 4);
  node_.faults->Inject({.op = StoreOp::kGet, .kind = FaultKind::kError, .key = TestKey(2).Text()});
  Answers answers(3);
  node_.Lookup({{TestKey(1), 4}, {TestKey(2), 4}, {TestKey(3), 4}}, &answers);
  node_.Settle();
  EXPECT_TRUE(Holds(1, answers[0].pin, 4));
  EXPECT_TRUE(answers[1].claim);
  EXPECT_TRUE(answers[1].store_failed);
  EXPECT_TRUE(Holds(3, answers[2].pin, 4));
  EXPECT_TRUE(Holds(2, node_.Compute(std::move(answers[1].claim), 2, 4), 4));
}

TEST_F(ControllerTest, AStoreThatThrowsOrAnswersTooLittleMakesMisses) {
  for (const FaultKind kind : {FaultKind::kThrow, FaultKind::kFewResults, FaultKind::kShortRead}) {
    for (const int64_t tokens : {int64_t{4}, int64_t{-1}}) {
      Node node(store_);
      Store(1, 4);
      node.faults->Inject({.op = StoreOp::kGet, .kind = kind});
      LookupAnswer answer = node.LookupOne(1, tokens);
      ASSERT_TRUE(answer.claim);
      EXPECT_TRUE(answer.store_failed);
      answer.claim.Abort(Status::Cancelled("enough"));
      EXPECT_EQ(node.Pool().free, Node::kPages);
      EXPECT_EQ(node.Pool().filling_entries, 0U);
    }
  }
}

TEST_F(ControllerTest, AHangingStoreCostsTheDeadlineAndItsPagesUntilItReturns) {
  for (const int64_t tokens : {int64_t{4}, int64_t{-1}}) {
    Node node(store_);
    Store(1, 4);
    node.faults->Inject({.op = StoreOp::kGet, .kind = FaultKind::kHang});
    Answers answers(1);
    node.Lookup({{TestKey(1), tokens}}, &answers, milliseconds(500));
    std::thread worker([&] { node.get->RunAll(); });
    ASSERT_TRUE(node.faults->WaitUntilHanging(1, SteadyClock().Now() + seconds(100)));
    node.Advance(milliseconds(500));
    EXPECT_TRUE(answers[0].claim);
    EXPECT_TRUE(answers[0].store_failed);
    EXPECT_EQ(node.Pool().quarantined, 1U);
    // The recomputed bytes are not those of the late answer.
    Pin pin = node.Compute(std::move(answers[0].claim), 7, 4);
    node.faults->Release();
    worker.join();
    EXPECT_EQ(node.Pool().quarantined, 0U);
    EXPECT_EQ(node.Pool().free, Node::kPages - 1);
    EXPECT_TRUE(Holds(7, pin.buffers()));
    node.Check();
  }
}

TEST_F(ControllerTest, ALateAnswerReservesNothingAnyMore) {
  Store(1, 4);
  node_.faults->Inject({.op = StoreOp::kStat, .kind = FaultKind::kHang});
  Answers answers(1);
  node_.Lookup({{TestKey(1), -1}}, &answers, milliseconds(500));
  std::thread worker([&] { node_.get->RunAll(); });
  ASSERT_TRUE(node_.faults->WaitUntilHanging(1, SteadyClock().Now() + seconds(100)));
  node_.Advance(milliseconds(500));
  EXPECT_TRUE(answers[0].claim);
  node_.faults->Release();
  worker.join();
  EXPECT_EQ(node_.Pool().free, Node::kPages);
  EXPECT_EQ(node_.faults->Seen(StoreOp::kGet), 0U);
}

TEST_F(ControllerTest, WithoutRoomAnItemIsAMissThatSaysSo) {
  Store(1, 4);
  std::vector<Pin> pins;
  for (uint64_t number = 10; number < 10 + Node::kPages; ++number) {
    pins.push_back(node_.Encode(number, 4));
  }
  std::vector<Claim> arena;  // takes the arena too
  for (uint64_t number = 30; number < 46; ++number) {
    arena.push_back(std::move(node_.LookupOne(number).claim));
    ASSERT_TRUE(arena.back().Reserve(4 * kTestRowBytes, 0).ok());
  }
  for (const int64_t tokens : {int64_t{4}, int64_t{-1}}) {
    LookupAnswer answer = node_.LookupOne(1, tokens);
    ASSERT_TRUE(answer.claim);
    EXPECT_TRUE(answer.no_room);
    EXPECT_FALSE(answer.store_failed);
    answer.claim.Abort(Status::Cancelled("enough"));
  }
  arena.clear();
  const LookupAnswer uncached = node_.LookupOne(1, 4);
  EXPECT_TRUE(Holds(1, uncached.pin, 4));
  EXPECT_FALSE(uncached.pin.cached());
  pins.clear();
  EXPECT_TRUE(node_.LookupOne(1, 4).pin.cached());
}

TEST_F(ControllerTest, WithoutAPoolEverythingIsServedUncached) {
  ControllerOptions options = Node::Options();
  options.max_pool_bytes = 0;
  Node node(store_, options);
  Store(1, 4);
  EXPECT_TRUE(Holds(1, node.LookupOne(1, 4).pin, 4));
  EXPECT_TRUE(Holds(2, node.Encode(2, 4), 4));
  EXPECT_FALSE(node.controller->HasLocalEmbedding(TestKey(2)));
  EXPECT_EQ(node.Insert({2}).skipped_count, 1U);
  EXPECT_EQ(node.Arena().free, node.Arena().pages);
}

TEST_F(ControllerTest, WithoutAStoreMissesAreAnsweredAtOnce) {
  Node node(nullptr);
  Answers answers(1);
  node.Lookup({{TestKey(1), 4}}, &answers);
  ASSERT_TRUE(answers.has(0));
  EXPECT_FALSE(node.controller->has_store());
  node.Compute(std::move(answers[0].claim), 1, 4);
  EXPECT_EQ(node.LookupOne(1).source, Source::kLocal);
  const InsertResult result = node.Insert({1});
  EXPECT_EQ(result.new_count + result.local_hit_count + result.skipped_count, 0U);
  std::vector<bool> found;
  node.controller->BatchIsExist(std::vector<EmbeddingKey>{TestKey(1), TestKey(2)},
                                node.clock.Now() + seconds(1),
                                [&](std::vector<bool> answer) { found = std::move(answer); });
  EXPECT_THAT(found, ElementsAre(true, false));
  RemoveResult removed;
  node.controller->Remove(TestKey(1), node.clock.Now() + seconds(1),
                          [&](RemoveResult answer) { removed = std::move(answer); });
  EXPECT_EQ(removed.outcome, RemoveOutcome::kRemoved);
}

TEST_F(ControllerTest, InsertCountsNewExistingAndSkippedAndLogsOneLine) {
  Store(3, 4);
  node_.Encode(1, 4).Release();
  node_.Encode(2, 4).Release();
  node_.Encode(3, 4).Release();  // from the store
  const Claim filling = std::move(node_.LookupOne(4).claim);
  log_.Take("");
  InsertResult result = node_.Insert({1, 2, 3, 4, 5, 1});
  EXPECT_EQ(result.new_count, 2U);
  EXPECT_EQ(result.local_hit_count, 1U);
  EXPECT_EQ(result.skipped_count, 2U);
  EXPECT_THAT(log_.Take("Global Cache"),
              ElementsAre("Global Cache: Inserting 3 embeddings into memory (2 new, 1 existing for "
                          "replication, 2 skipped due to allocation failure)"));
  EXPECT_EQ(node_.Inserted("new"), 2);
  EXPECT_EQ(node_.Inserted("existing"), 1);
  EXPECT_EQ(node_.Inserted("skipped"), 2);
  node_.Settle();
  EXPECT_EQ(node_.faults->Seen(StoreOp::kPut), 3U);
  EXPECT_EQ(node_.Published("stored"), 2);
  EXPECT_EQ(node_.Published("already_present"), 1);
  EXPECT_FALSE(ReadObject(*store_, TestKey(4))) << "what is being filled is never published";
  result = node_.Insert({1, 2});
  EXPECT_EQ(result.new_count, 0U);
  EXPECT_EQ(result.local_hit_count, 2U);
}

TEST_F(ControllerTest, LocalHitsArePublishedAgainAfterTheStoreLostThem) {
  node_.Encode(1, 4).Release();
  node_.Insert({1});
  node_.Settle();
  Lose(1);
  Node other(store_);
  EXPECT_TRUE(other.LookupOne(1, 4).claim) << "it is invisible there";
  EXPECT_EQ(node_.LookupOne(1, 4).source, Source::kLocal);
  EXPECT_EQ(node_.Insert({1}).local_hit_count, 1U);
  node_.Settle();
  const LookupAnswer answer = other.LookupOne(1, 4);
  EXPECT_EQ(answer.source, Source::kGlobal);
  EXPECT_TRUE(Holds(1, answer.pin, 4));
}

TEST_F(ControllerTest, AnEntryUnderPublicationIsNotEvictedAndInsertNeverWaits) {
  node_.Encode(1, 4).Release();
  node_.Insert({1});
  for (uint64_t number = 10; number < 30; ++number) node_.Encode(number, 4).Release();
  // Settle has published it; another one stays queued.
  node_.Insert({29});
  EXPECT_EQ(node_.Pool().pinned_entries, 1U);
  for (uint64_t number = 30; number < 50; ++number) {
    Answers answers(1);
    node_.Lookup({{TestKey(number), 4}}, &answers);
    node_.get->RunAll();
    node_.Compute(std::move(answers[0].claim), number, 4);
  }
  EXPECT_TRUE(node_.controller->HasLocalEmbedding(TestKey(29)));
  node_.Settle();
  EXPECT_TRUE(ReadObject(*store_, TestKey(29)));
  EXPECT_EQ(node_.Pool().pinned_entries, 0U);
}

TEST_F(ControllerTest, WhatWasRecomputedAfterAFailedPrefetchIsWhatIsPublished) {
  node_.faults->Inject({.op = StoreOp::kGet, .kind = FaultKind::kShortRead, .count = 1});
  Store(1, 4);
  ASSERT_TRUE(node_.Prefetch("r", {{TestKey(1), 4}}).ok());
  node_.Settle();
  EXPECT_THAT(node_.controller->PrefetchOutcomes("r"), ElementsAre(PrefetchOutcome::kFailed));
  Lose(1);
  const Pin pin = node_.Encode(1, 4);
  EXPECT_EQ(node_.Insert({1}).new_count, 1U);
  node_.Settle();
  EXPECT_EQ(ReadObject(*store_, TestKey(1))->size(), MakeObject(1, TestInfo(1, 4)).size());
  Node other(store_);
  EXPECT_TRUE(Holds(1, other.LookupOne(1, 4).pin, 4));
}

TEST_F(ControllerTest, NaNIsPublishedOnlyWhereThatIsWanted) {
  for (const bool wanted : {false, true}) {
    ControllerOptions options = Node::Options();
    options.publish_nonfinite = wanted;
    Node node(NewMemoryStore(), options);
    Claim claim = std::move(node.LookupOne(1, 4).claim);
    ASSERT_TRUE(claim.Reserve(4 * kTestRowBytes, 0).ok());
    FillWith(1, claim.buffers());
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(claim.buffers().front().data(), &nan, sizeof nan);
    ASSERT_TRUE(claim.Commit(4, "").ok());
    node.Insert({1});
    node.Settle();
    EXPECT_EQ(node.Published("stored"), wanted ? 1 : 0);
  }
}

TEST_F(ControllerTest, PresenceIsLookedForHereFirstThenInOneCallAndLogged) {
  Store(2, 4);
  node_.Encode(1, 4).Release();
  log_.Take("");
  std::vector<bool> found;
  node_.controller->BatchIsExist(std::vector<EmbeddingKey>{TestKey(1), TestKey(2), TestKey(3)},
                                 node_.clock.Now() + seconds(1),
                                 [&](std::vector<bool> answer) { found = std::move(answer); });
  node_.Settle();
  EXPECT_THAT(found, ElementsAre(true, true, false));
  EXPECT_EQ(node_.faults->Seen(StoreOp::kExist), 2U);
  EXPECT_THAT(log_.Take("==="),
              ElementsAre("=== Multi-Level Cache Check === Total: 3 | Local Hits: 1 | Global Hits: "
                          "1 | Misses (GPU Work): 1"));
}

TEST_F(ControllerTest, RemoveTakesTheItemFromHereAndFromTheStore) {
  node_.Encode(1, 4).Release();
  node_.Insert({1});
  node_.Settle();
  RemoveResult removed;
  node_.controller->Remove(TestKey(1), node_.clock.Now() + seconds(1),
                           [&](RemoveResult answer) { removed = std::move(answer); });
  EXPECT_FALSE(node_.controller->HasLocalEmbedding(TestKey(1)));
  node_.Settle();
  EXPECT_EQ(removed.outcome, RemoveOutcome::kRemoved);
  EXPECT_FALSE(ReadObject(*store_, TestKey(1)));
}

TEST_F(ControllerTest, StatsShowPoolsLanesAndTheStore) {
  Pin pin = node_.Encode(1, 300);
  const Claim filling = std::move(node_.LookupOne(2).claim);
  const ControllerStats stats = node_.controller->Stats();
  ASSERT_EQ(stats.pools.size(), 2U);
  EXPECT_EQ(stats.pools[0].name, "vision/1024");
  EXPECT_EQ(stats.pools[0].pages, Node::kPages);
  EXPECT_EQ(stats.pools[0].ready, 2U);
  EXPECT_EQ(stats.pools[0].free, Node::kPages - 2);
  EXPECT_EQ(stats.pools[0].entries, 1U);
  EXPECT_EQ(stats.pools[0].pinned_entries, 1U);
  EXPECT_EQ(stats.pools[0].filling_entries, 1U);
  EXPECT_EQ(stats.pools[1].name, "uncached");
  ASSERT_EQ(stats.lanes.size(), 2U);
  EXPECT_EQ(stats.lanes[0].name, "get");
  EXPECT_EQ(stats.lanes[1].name, "put");
  EXPECT_EQ(stats.backend, "memory");
  EXPECT_EQ(stats.store.state, StoreState::kUp);
}

TEST_F(ControllerTest, WrongOptionsAreRefusedByName) {
  const auto create = [](ControllerOptions options) {
    return EmbeddingCacheController::Create(std::move(options), {}).status();
  };
  ControllerOptions options = Node::Options();
  options.max_eviction_batch = 0;
  EXPECT_THAT(create(options).message(), HasSubstr("max_eviction_batch"));
  options = Node::Options();
  options.get_workers = 1;
  EXPECT_THAT(create(options).message(), HasSubstr("1 get workers"));
  options = Node::Options();
  options.pools[0].row_bytes = 0;
  EXPECT_THAT(create(options).message(), HasSubstr("rows of 0 bytes"));
}

TEST_F(ControllerTest, VisionAndAudioShareTheMemoryFourToOne) {
  ControllerOptions options = Node::Options();
  options.max_pool_bytes *= 5;
  options.pools.push_back({.modality = Modality::kAudio, .row_bytes = kTestRowBytes});
  options.pools.push_back({.modality = Modality::kVideo, .row_bytes = kTestRowBytes});
  Node node(store_, options);
  const ControllerStats stats = node.controller->Stats();
  ASSERT_EQ(stats.pools.size(), 3U) << "video shares the vision pool";
  EXPECT_EQ(stats.pools[0].name, "vision/1024");
  EXPECT_EQ(stats.pools[0].pages, 4 * Node::kPages);
  EXPECT_EQ(stats.pools[1].name, "audio/1024");
  EXPECT_EQ(stats.pools[1].pages, Node::kPages);
}

TEST_F(ControllerTest, CloseStopsTakingWorkAndIsIdempotent) {
  Pin pin = node_.Encode(1, 4);
  EXPECT_TRUE(node_.controller->Close(node_.clock.Now()).ok());
  EXPECT_TRUE(node_.controller->Close(node_.clock.Now()).ok());
  Answers answers(2);
  node_.Lookup({{TestKey(1), 4}, {TestKey(2), 4}}, &answers);
  EXPECT_EQ(answers[0].status.code(), StatusCode::kCancelled);
  EXPECT_EQ(answers[1].status.code(), StatusCode::kCancelled);
  EXPECT_EQ(node_.Prefetch("r", {{TestKey(1), 4}}).code(), StatusCode::kCancelled);
  EXPECT_EQ(node_.Insert({1}).new_count, 0U);
  EXPECT_TRUE(Holds(1, pin, 4)) << "pins stay good";
}

TEST_F(ControllerTest, CloseLeavesAHangingStoreBehindWithTheMemoryItUses) {
  Store(1, 4);
  Answers answers(1);
  node_.Encode(2, 4).Release();
  node_.faults->Inject({.op = StoreOp::kGet, .kind = FaultKind::kHang});
  node_.faults->Inject({.op = StoreOp::kPut, .kind = FaultKind::kHang});
  node_.Insert({2});
  node_.Lookup({{TestKey(1), 4}}, &answers, seconds(100));
  std::thread get([executor = node_.get] { executor->RunAll(); });
  std::thread put([executor = node_.put] { executor->RunAll(); });
  ASSERT_TRUE(node_.faults->WaitUntilHanging(2, SteadyClock().Now() + seconds(100)));
  EXPECT_EQ(node_.controller->Close(node_.clock.Now()).code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(answers[0].claim) << "the item is a miss";
  EXPECT_TRUE(answers[0].store_failed);
  EXPECT_EQ(node_.controller->Close(node_.clock.Now()).code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(node_.Pool().quarantined, 1U);
  answers.answers.clear();
  const std::shared_ptr<FaultyStore> faults = node_.faults;
  node_.controller.reset();
  faults->Clear();
  get.join();
  put.join();  // both came back to memory that was still theirs
  node_.controller = EmbeddingCacheController::Create(Node::Options(), {}).value();
}

}  // namespace
}  // namespace embercache
