#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "src/base/sync_point.h"
#include "tests/support/controller_fixture.h"

// Races by name, each forced: one thread is held at a sync point while the other does its part.

namespace embercache {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class RacesTest : public testing::Test {
 protected:
  void Store(uint64_t number, uint64_t tokens) {
    WriteObject(*store_, TestKey(number), MakeObject(number, TestInfo(number, tokens)));
  }
  // Runs `body` on a thread of its own until it is held at `point`.
  std::thread RunUntil(const std::string& point, std::function<void()> body) {
    points_.Hold(point);
    std::thread thread(std::move(body));
    EXPECT_TRUE(points_.WaitHeld(point)) << point;
    return thread;
  }
  void Finish(const std::string& point, std::thread& thread) {
    points_.Release(point);
    thread.join();
  }

  SyncPoints& points_ = SyncPoints::Instance();
  std::shared_ptr<EmbeddingStore> store_ = NewMemoryStore();
  Node node_{store_};
};

TEST_F(RacesTest, APinThatComesBeforeTheEvictionStepKeepsItsEntry) {
  for (uint64_t number = 0; number < Node::kPages; ++number) node_.Encode(number, 4).Release();
  Claim claim = std::move(node_.LookupOne(50).claim);
  Status reserved;
  std::thread evicting = RunUntil("host: before eviction step",
                                  [&] { reserved = claim.Reserve(4 * kTestRowBytes, 0); });
  const Pin pin = node_.controller->TryPin(TestKey(0));  // the next victim
  Finish("host: before eviction step", evicting);
  ASSERT_TRUE(reserved.ok());
  EXPECT_FALSE(claim.uncached());
  EXPECT_TRUE(Holds(0, pin, 4));
  EXPECT_TRUE(node_.controller->HasLocalEmbedding(TestKey(0)));
  EXPECT_FALSE(node_.controller->HasLocalEmbedding(TestKey(1)));
  node_.Check();
}

TEST_F(RacesTest, APinThatIsReleasedBetweenEvictionStepsIsNoHarm) {
  ControllerOptions options = Node::Options();
  options.max_eviction_batch = 1;
  Node node(store_, options);
  for (uint64_t number = 0; number < Node::kPages; ++number) node.Encode(number, 4).Release();
  Pin pin = node.controller->TryPin(TestKey(1));
  Claim claim = std::move(node.LookupOne(50).claim);
  Status reserved;
  std::thread evicting = RunUntil("host: before eviction step", [&] {
    reserved = claim.Reserve(3 * Node::kRowsAPage * kTestRowBytes, 0);
  });
  pin.Release();
  Finish("host: before eviction step", evicting);
  EXPECT_TRUE(reserved.ok());
  EXPECT_FALSE(claim.uncached());
  EXPECT_TRUE(node.controller->HasLocalEmbedding(TestKey(1))) << "it was used last";
  node.Check();
}

TEST_F(RacesTest, ARemovalBeforeACommitsLastStepIsHonoured) {
  Claim claim = std::move(node_.LookupOne(1).claim);
  ASSERT_TRUE(claim.Reserve(4 * kTestRowBytes, 0).ok());
  FillWith(1, claim.buffers());
  Result<Pin> pin = Status::Internal("not yet");
  std::thread committing = RunUntil("host: sealed", [&] { pin = claim.Commit(4, ""); });
  EXPECT_FALSE(node_.controller->HasLocalEmbedding(TestKey(1))) << "not ready before";
  node_.controller->Remove(TestKey(1), node_.clock.Now() + seconds(1), [](RemoveResult) {});
  Claim again = std::move(node_.LookupOne(1).claim);
  EXPECT_TRUE(again);
  Finish("host: sealed", committing);
  ASSERT_TRUE(pin.ok());
  EXPECT_TRUE(Holds(1, *pin, 4));
  EXPECT_FALSE(node_.controller->HasLocalEmbedding(TestKey(1)));
  node_.Check();
  again.Abort(Status::Cancelled("enough"));
  pin->Release();
  EXPECT_EQ(node_.Pool().free, Node::kPages);
}

TEST_F(RacesTest, AWaiterThatIsAnsweredWhileItsDeadlineFiresIsAnsweredOnce) {
  for (const bool deadline_first : {false, true}) {
    Node node(store_);
    Claim claim = std::move(node.LookupOne(1).claim);
    ASSERT_TRUE(claim.Reserve(4 * kTestRowBytes, 0).ok());
    FillWith(1, claim.buffers());
    Answers answers(1);
    node.Lookup({{TestKey(1), 4}}, &answers, milliseconds(100));
    if (deadline_first) {
      std::thread timer =
          RunUntil("lookup: wait deadline", [&] { node.Advance(milliseconds(100)); });
      ASSERT_TRUE(claim.Commit(4, "").ok());
      Finish("lookup: wait deadline", timer);
      EXPECT_TRUE(Holds(1, answers[0].pin, 4));
    } else {
      // The waiter was taken for its pin, and is about to be called.
      std::thread committing =
          RunUntil("host: before waiters", [&] { ASSERT_TRUE(claim.Commit(4, "").ok()); });
      node.Advance(milliseconds(100));
      EXPECT_FALSE(answers.has(0));
      Finish("host: before waiters", committing);
      EXPECT_TRUE(Holds(1, answers[0].pin, 4));
    }
    node.Check();
  }
}

TEST_F(RacesTest, AWaiterThatIsAnsweredBeforeItsTimerIsSetLeavesNoTimerBehind) {
  Claim claim = std::move(node_.LookupOne(1).claim);
  ASSERT_TRUE(claim.Reserve(4 * kTestRowBytes, 0).ok());
  FillWith(1, claim.buffers());
  Answers answers(1);
  std::thread asking =
      RunUntil("lookup: before wait timer", [&] { node_.Lookup({{TestKey(1), 4}}, &answers); });
  ASSERT_TRUE(claim.Commit(4, "").ok());
  Finish("lookup: before wait timer", asking);
  EXPECT_TRUE(Holds(1, answers[0].pin, 4));
  EXPECT_EQ(node_.timer->size(), 0U);
}

TEST_F(RacesTest, AnAnswerThatComesWhileItsDeadlineFiresIsGivenOnce) {
  for (const bool deadline_first : {false, true}) {
    Node node(store_);
    Store(1, 4);
    Answers answers(1);
    node.Lookup({{TestKey(1), 4}}, &answers, milliseconds(100));
    if (deadline_first) {
      // The deadline has fired; before it takes the job, the store's answer is given.
      std::thread worker = RunUntil("lane: returned", [&] { node.get->RunAll(); });
      std::thread timer = RunUntil("lane: deadline", [&] { node.Advance(milliseconds(100)); });
      Finish("lane: returned", worker);
      EXPECT_TRUE(Holds(1, answers[0].pin, 4));
      Finish("lane: deadline", timer);
    } else {
      std::thread worker = RunUntil("lane: returned", [&] { node.get->RunAll(); });
      node.Advance(milliseconds(100));
      EXPECT_TRUE(answers[0].claim);
      EXPECT_TRUE(answers[0].store_failed);
      EXPECT_EQ(node.Pool().quarantined, 1U) << "the call has not returned";
      Finish("lane: returned", worker);
    }
    answers.answers.clear();
    EXPECT_EQ(node.Pool().filling, 0U);
    EXPECT_EQ(node.Pool().quarantined, 0U);
    node.Check();
  }
}

TEST_F(RacesTest, CloseWaitsForAnAnswerThatIsBeingGiven) {
  ControllerOptions options = Node::Options();
  auto controller = EmbeddingCacheController::Create(options, {.store = store_}).value();
  Store(1, 4);
  Answers answers(1);
  const LookupItem item{TestKey(1), 4};
  points_.Hold("lane: before answer");
  controller->Lookup(TestSpec(), std::span(&item, 1), SteadyClock().Now() + seconds(100),
                     SteadyClock().Now() + seconds(100), answers.callback());
  ASSERT_TRUE(points_.WaitHeld("lane: before answer"));
  std::atomic<bool> closed{false};
  std::thread closing([&] {
    EXPECT_TRUE(controller->Close(SteadyClock().Now() + seconds(100)).ok());
    closed = true;
  });
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_FALSE(closed.load());
  points_.Release("lane: before answer");
  closing.join();
  EXPECT_TRUE(Holds(1, answers[0].pin, 4)) << "given before Close returned";
}

TEST_F(RacesTest, CloseWithADeadlineAnswersForACallThatHasReturnedButNotYetSaidSo) {
  Store(1, 4);
  Answers answers(1);
  node_.Lookup({{TestKey(1), 4}}, &answers, seconds(100));
  std::thread worker = RunUntil("lane: returned", [&] { node_.get->RunAll(); });
  EXPECT_EQ(node_.controller->Close(node_.clock.Now()).code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(answers[0].claim) << "a miss";
  Finish("lane: returned", worker);
  EXPECT_TRUE(node_.controller->Close(node_.clock.Now()).ok());
  answers.answers.clear();
  EXPECT_EQ(node_.Pool().free, Node::kPages);
}

}  // namespace
}  // namespace embercache
