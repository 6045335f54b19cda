#include "src/io/transfer_lane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/manual_runtime.h"

namespace embercache {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

// What became of one job.
struct Outcome {
  int runs = 0;
  int answers = 0;
  Status status;
  bool returned = false;
  bool saw_cancel = false;
  TimePoint store_deadline;

  StatusCode code() const { return status.code(); }
};

class TransferLaneTest : public testing::Test {
 protected:
  // A task that never ran keeps its lane, and the lane the tasks.
  void TearDown() override {
    lane_.reset();
    executor_->RunAll();
  }

  void MakeLane(TransferLaneOptions options = {}) {
    options.name = "get";
    lane_ = std::make_unique<TransferLane>(options, executor_, timer_, &clock_);
  }

  // A job that the store answers with `answer`.
  TransferJob Job(Outcome* outcome, uint64_t bytes, Duration timeout = seconds(10),
                  Status answer = Status::Ok()) {
    TransferJob job;
    job.bytes = bytes;
    job.deadline = clock_.Now() + timeout;
    job.run = [outcome, answer](const CallContext& context) {
      ++outcome->runs;
      outcome->saw_cancel = context.cancelled->load();
      outcome->store_deadline = context.deadline;
      return answer;
    };
    job.done = [outcome](const Status& status, bool returned) {
      ++outcome->answers;
      outcome->status = status;
      outcome->returned = returned;
    };
    return job;
  }

  void Advance(Duration time) {
    clock_.Advance(time);
    timer_->RunDue();
  }

  // `count` jobs that fail; each is run.
  void Fail(int count, Status status = Status::Unavailable("down")) {
    for (int i = 0; i < count; ++i) {
      Outcome outcome;
      lane_->Submit(Job(&outcome, 1, seconds(10), status));
      executor_->RunAll();
      ASSERT_EQ(outcome.answers, 1);
      ASSERT_EQ(outcome.runs, 1);
    }
  }

  ManualClock clock_;
  std::shared_ptr<ManualExecutor> executor_ = std::make_shared<ManualExecutor>();
  std::shared_ptr<ManualTimer> timer_ = std::make_shared<ManualTimer>(&clock_);
  std::unique_ptr<TransferLane> lane_;
};

TEST_F(TransferLaneTest, AJobGivesItsStatusOnce) {
  MakeLane();
  Outcome good, bad;
  lane_->Submit(Job(&good, 100));
  lane_->Submit(Job(&bad, 100, seconds(10), Status::NotFound("nothing")));
  EXPECT_EQ(good.answers, 0);
  executor_->RunAll();
  Advance(seconds(20));
  EXPECT_EQ(good.answers, 1);
  EXPECT_TRUE(good.status.ok());
  EXPECT_TRUE(good.returned);
  EXPECT_EQ(bad.answers, 1);
  EXPECT_EQ(bad.code(), StatusCode::kNotFound);
  EXPECT_EQ(timer_->size(), 0U) << "a deadline was left behind";
}

TEST_F(TransferLaneTest, TheStoreIsAskedToAnswerBeforeTheDeadlineOfWhoWaits) {
  MakeLane();
  Outcome early, late;
  lane_->Submit(Job(&early, 1, milliseconds(100)));
  lane_->Submit(Job(&late, 1, seconds(10)));
  const TimePoint now = clock_.Now();
  executor_->RunAll();
  EXPECT_EQ(early.store_deadline, now + milliseconds(90));
  EXPECT_EQ(late.store_deadline, now + seconds(10) - milliseconds(50));
}

TEST_F(TransferLaneTest, AJobWhoseDeadlinePassesInTheQueueIsAnsweredAndNeverRun) {
  MakeLane({.workers = 2});
  Outcome running, other, queued;
  lane_->Submit(Job(&running, 1));
  lane_->Submit(Job(&other, 1));
  lane_->Submit(Job(&queued, 1, milliseconds(100)));
  ASSERT_EQ(lane_->Stats().queued, 1U);
  Advance(milliseconds(100));
  EXPECT_EQ(queued.answers, 1);
  EXPECT_EQ(queued.code(), StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(queued.returned);
  EXPECT_EQ(lane_->Stats().queued, 0U);
  EXPECT_EQ(lane_->Stats().queued_bytes, 0U);
  executor_->RunAll();
  EXPECT_EQ(queued.runs, 0);
  EXPECT_EQ(running.answers + other.answers, 2);
}

TEST_F(TransferLaneTest, AJobWhoseDeadlinePassedBeforeAThreadCameIsNotRun) {
  MakeLane();
  Outcome answered, unanswered;
  lane_->Submit(Job(&answered, 1, milliseconds(100)));
  lane_->Submit(Job(&unanswered, 1, milliseconds(200)));
  Advance(milliseconds(100));
  EXPECT_EQ(answered.answers, 1);
  clock_.Advance(milliseconds(100));  // the timer is late
  executor_->RunAll();
  EXPECT_EQ(answered.runs, 0);
  EXPECT_EQ(unanswered.runs, 0);
  EXPECT_EQ(unanswered.answers, 1);
  EXPECT_EQ(unanswered.code(), StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(unanswered.returned);
}

TEST_F(TransferLaneTest, AHangingStoreHoldsNobodyUpBeyondTheDeadline) {
  MakeLane({.workers = 2});
  std::promise<void> started, release;
  Outcome hung;
  TransferJob job = Job(&hung, 1, milliseconds(500));
  std::atomic<bool> cancelled{false};
  job.run = [&](const CallContext& context) {
    started.set_value();
    release.get_future().wait();
    cancelled = context.cancelled->load();
    return Status::Ok();
  };
  lane_->Submit(std::move(job));
  std::thread worker([&] { executor_->RunOne(); });
  started.get_future().wait();
  Advance(milliseconds(500));
  EXPECT_EQ(hung.answers, 1);
  EXPECT_EQ(hung.code(), StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(hung.returned) << "the call still owns its memory";
  EXPECT_EQ(lane_->Stats().running, 1U);
  release.set_value();
  worker.join();
  EXPECT_TRUE(cancelled.load()) << "the store is told that nobody waits";
  EXPECT_EQ(hung.answers, 1);
  EXPECT_EQ(lane_->Stats().running, 0U);
}

TEST_F(TransferLaneTest, WhatAJobOwnsIsLetGoWhenItIsOver) {
  MakeLane({.workers = 2});
  auto memory = std::make_shared<int>(0);
  Outcome outcome[3];
  for (Outcome& each : outcome) {
    TransferJob job = Job(&each, 1, milliseconds(100));
    job.run = [memory, run = job.run](const CallContext& context) { return run(context); };
    lane_->Submit(std::move(job));
  }
  EXPECT_EQ(memory.use_count(), 4);
  executor_->RunOne();  // frees a place for the third, which is then given to the executor
  EXPECT_EQ(memory.use_count(), 3);
  Advance(milliseconds(100));
  executor_->RunAll();
  EXPECT_EQ(memory.use_count(), 1);
}

TEST_F(TransferLaneTest, AStoreThatThrowsIsAnErrorOfThatJobAlone) {
  MakeLane();
  Outcome threw, threw_int, after;
  TransferJob job = Job(&threw, 1);
  job.run = [](const CallContext&) -> Status { throw std::runtime_error("no such luck"); };
  lane_->Submit(std::move(job));
  job = Job(&threw_int, 1);
  job.run = [](const CallContext&) -> Status { throw 7; };
  lane_->Submit(std::move(job));
  lane_->Submit(Job(&after, 1));
  executor_->RunAll();
  EXPECT_EQ(threw.code(), StatusCode::kInternal);
  EXPECT_THAT(threw.status.message(), HasSubstr("no such luck"));
  EXPECT_TRUE(threw.returned);
  EXPECT_EQ(threw_int.code(), StatusCode::kInternal);
  EXPECT_TRUE(after.status.ok());
  EXPECT_EQ(after.answers, 1);
}

TEST_F(TransferLaneTest, AFullLaneRefusesAtOnce) {
  MakeLane({.workers = 2, .max_queued_bytes = 10 * kMiB});
  Outcome running, queued, refused, small;
  lane_->Submit(Job(&running, 8 * kMiB));
  lane_->Submit(Job(&queued, 8 * kMiB));
  lane_->Submit(Job(&refused, 3 * kMiB));
  EXPECT_EQ(refused.answers, 1);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(refused.returned);
  EXPECT_EQ(lane_->Stats().dropped, 1U);
  EXPECT_EQ(queued.answers, 0);
  executor_->RunAll();
  EXPECT_EQ(refused.runs, 0);
  EXPECT_EQ(queued.answers, 1);
  lane_->Submit(Job(&small, 3 * kMiB));
  executor_->RunAll();
  EXPECT_EQ(small.answers, 1) << "room came back";
  EXPECT_TRUE(small.status.ok());
}

TEST_F(TransferLaneTest, AFullPutLaneDropsItsOldest) {
  MakeLane({.workers = 2, .max_queued_bytes = 10 * kMiB, .drop_oldest = true});
  Outcome running, oldest, older, newest;
  lane_->Submit(Job(&running, 2 * kMiB));
  lane_->Submit(Job(&oldest, 4 * kMiB));
  lane_->Submit(Job(&older, 4 * kMiB));
  lane_->Submit(Job(&newest, 6 * kMiB));
  EXPECT_EQ(oldest.answers, 1);
  EXPECT_EQ(oldest.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(older.answers, 0);
  EXPECT_EQ(lane_->Stats().dropped, 1U);
  EXPECT_EQ(lane_->Stats().queued_bytes, 10 * kMiB);
  executor_->RunAll();
  EXPECT_EQ(oldest.runs, 0);
  EXPECT_EQ(older.runs, 1);
  EXPECT_EQ(newest.runs, 1);
  EXPECT_EQ(timer_->size(), 0U);
}

TEST_F(TransferLaneTest, AJobLargerThanTheQueueRunsWhenItNeedNotWait) {
  for (const bool drop_oldest : {false, true}) {
    MakeLane({.workers = 2, .max_queued_bytes = 10 * kMiB, .drop_oldest = drop_oldest});
    Outcome first, second;
    lane_->Submit(Job(&first, 20 * kMiB));
    lane_->Submit(Job(&second, 20 * kMiB));
    EXPECT_EQ(second.code(), StatusCode::kResourceExhausted);
    executor_->RunAll();
    EXPECT_EQ(first.runs, 1);
    EXPECT_TRUE(first.status.ok());
  }
}

TEST_F(TransferLaneTest, JobsWithoutBytesAreBoundedToo) {
  MakeLane({.workers = 2, .max_queued_bytes = 4096 * 10});
  std::vector<Outcome> outcomes(20);
  for (Outcome& outcome : outcomes) lane_->Submit(Job(&outcome, 0));
  EXPECT_EQ(lane_->Stats().queued, 10U);
  EXPECT_EQ(lane_->Stats().dropped, 8U);
  executor_->RunAll();
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.answers, 1);
}

TEST_F(TransferLaneTest, LargeJobsLeaveAWorkerForSmallOnes) {
  MakeLane({.workers = 3});
  std::vector<Outcome> large(4);
  for (Outcome& outcome : large) lane_->Submit(Job(&outcome, 64 * kMiB));
  EXPECT_EQ(lane_->Stats().running, 2U);
  Outcome small;
  lane_->Submit(Job(&small, 16 << 10));
  EXPECT_EQ(lane_->Stats().running, 3U);
  executor_->RunOne(2);
  EXPECT_EQ(small.answers, 1);
  EXPECT_EQ(lane_->Stats().running, 2U) << "the small one's place is not for large ones";
  executor_->RunAll();
  for (const Outcome& outcome : large) EXPECT_EQ(outcome.answers, 1);
}

TEST_F(TransferLaneTest, ASmallJobEntersAQueueThatLargeOnesFill) {
  MakeLane({.workers = 2, .max_queued_bytes = 10 * kMiB});
  Outcome large[2], small;
  for (Outcome& outcome : large) lane_->Submit(Job(&outcome, 10 * kMiB));
  lane_->Submit(Job(&small, 100));
  EXPECT_EQ(small.answers, 0) << "there is a worker for it";
  executor_->RunAll();
  EXPECT_TRUE(small.status.ok());
}

TEST_F(TransferLaneTest, TheBreakerOpensAfterFailuresInARowAndAnswersAtOnce) {
  MakeLane({.breaker_failures = 3, .open_for = seconds(1)});
  Fail(2);
  Fail(1, Status::NotFound("an answer is no failure"));
  Fail(2);
  EXPECT_FALSE(lane_->Stats().breaker_open);
  Fail(1);
  EXPECT_TRUE(lane_->Stats().breaker_open);
  Outcome refused;
  lane_->Submit(Job(&refused, 1));
  EXPECT_EQ(refused.answers, 1);
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_FALSE(refused.returned);
  EXPECT_EQ(executor_->size(), 0U);
}

TEST_F(TransferLaneTest, AnOpenBreakerLetsOneProbeThroughAndClosesWhenItIsAnswered) {
  MakeLane({.breaker_failures = 1, .open_for = seconds(1)});
  int recovered = 0;
  lane_->OnRecovered([&] { ++recovered; });
  Fail(1);
  Advance(milliseconds(999));
  Outcome early, probe, second, after;
  lane_->Submit(Job(&early, 1));
  EXPECT_EQ(early.code(), StatusCode::kUnavailable);
  Advance(milliseconds(251));  // the longest jitter
  lane_->Submit(Job(&probe, 1));
  lane_->Submit(Job(&second, 1));
  EXPECT_EQ(second.code(), StatusCode::kUnavailable) << "one probe at a time";
  EXPECT_EQ(probe.answers, 0);
  executor_->RunAll();
  EXPECT_TRUE(probe.status.ok());
  EXPECT_FALSE(lane_->Stats().breaker_open);
  EXPECT_EQ(recovered, 1);
  lane_->Submit(Job(&after, 1));
  executor_->RunAll();
  EXPECT_TRUE(after.status.ok());
  EXPECT_EQ(recovered, 1);
}

TEST_F(TransferLaneTest, FailedProbesDoubleTheTimeUpToALimit) {
  MakeLane({.breaker_failures = 1, .open_for = seconds(1), .max_open_for = seconds(4)});
  Fail(1);
  for (const int64_t open_s : {1, 2, 4, 4}) {
    Outcome refused;
    Advance(seconds(open_s) - milliseconds(1));
    lane_->Submit(Job(&refused, 1));
    EXPECT_EQ(refused.code(), StatusCode::kUnavailable) << open_s;
    EXPECT_EQ(refused.runs, 0);
    Advance(milliseconds(open_s * 250 + 1));
    Fail(1);
  }
}

TEST_F(TransferLaneTest, AProbeThatIsNeverAnsweredIsFollowedByAnother) {
  MakeLane({.workers = 2, .breaker_failures = 1, .open_for = seconds(1)});
  Fail(1);
  Advance(milliseconds(1250));
  Outcome probe, next;
  lane_->Submit(Job(&probe, 1, milliseconds(500)));
  Advance(milliseconds(500));
  EXPECT_EQ(probe.code(), StatusCode::kDeadlineExceeded);
  Advance(milliseconds(2500));
  lane_->Submit(Job(&next, 1));
  EXPECT_EQ(next.answers, 0) << "it is the next probe";
  executor_->RunAll();
  EXPECT_TRUE(next.status.ok());
  EXPECT_FALSE(lane_->Stats().breaker_open);
}

TEST_F(TransferLaneTest, AProbeThatTheQueueDropsIsFollowedByAnother) {
  MakeLane({.workers = 2,
            .max_queued_bytes = 10 * kMiB,
            .drop_oldest = true,
            .breaker_failures = 1,
            .open_for = seconds(1)});
  Outcome large, good, probe, newer, next;
  lane_->Submit(Job(&large, 2 * kMiB));
  Outcome failing;
  lane_->Submit(Job(&failing, 1, seconds(10), Status::Unavailable("down")));
  lane_->Submit(Job(&good, 1));
  executor_->RunOne(1);
  ASSERT_TRUE(lane_->Stats().breaker_open);
  Advance(milliseconds(1250));
  lane_->Submit(Job(&probe, 8 * kMiB));
  executor_->RunOne(1);  // the good one closes the breaker while the probe waits
  ASSERT_FALSE(lane_->Stats().breaker_open);
  lane_->Submit(Job(&newer, 8 * kMiB));
  ASSERT_EQ(probe.code(), StatusCode::kResourceExhausted);
  lane_->Submit(Job(&failing, 1, seconds(10), Status::Unavailable("down")));
  executor_->RunOne(1);
  ASSERT_TRUE(lane_->Stats().breaker_open);
  Advance(milliseconds(1250));
  lane_->Submit(Job(&next, 1));
  EXPECT_EQ(next.answers, 0) << "it is the next probe";
  executor_->RunAll();
}

TEST_F(TransferLaneTest, AHangingStoreOpensTheBreakerByItsDeadlines) {
  MakeLane({.workers = 2, .breaker_failures = 3, .open_for = seconds(1)});
  std::vector<Outcome> outcomes(3);
  for (Outcome& outcome : outcomes) lane_->Submit(Job(&outcome, 1, milliseconds(500)));
  Advance(milliseconds(500));
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code(), StatusCode::kDeadlineExceeded);
  }
  EXPECT_TRUE(lane_->Stats().breaker_open);
}

TEST_F(TransferLaneTest, WhatWasCancelledSaysNothingAboutTheStore) {
  MakeLane({.breaker_failures = 1, .open_for = seconds(1)});
  Fail(1);
  Advance(milliseconds(1250));
  Outcome probe;
  lane_->Submit(Job(&probe, 1, seconds(10), Status::Cancelled("nobody waits")));
  executor_->RunAll();
  EXPECT_TRUE(lane_->Stats().breaker_open) << "it was no answer";
  Outcome next;
  lane_->Submit(Job(&next, 1));
  executor_->RunAll();
  EXPECT_TRUE(next.status.ok()) << "the next one probes";
  EXPECT_FALSE(lane_->Stats().breaker_open);
}

TEST_F(TransferLaneTest, ALateReturnDoesNotCountTwice) {
  MakeLane({.workers = 2, .breaker_failures = 2, .open_for = seconds(1)});
  Outcome late;
  lane_->Submit(Job(&late, 1, milliseconds(100), Status::Unavailable("down")));
  Advance(milliseconds(100));
  executor_->RunAll();
  EXPECT_FALSE(lane_->Stats().breaker_open) << "one job, one failure";
}

TEST_F(TransferLaneTest, CloseRefusesNewJobsAndAnswersThoseLeft) {
  MakeLane({.workers = 2});
  Outcome running[2], queued, late;
  for (Outcome& outcome : running) lane_->Submit(Job(&outcome, 1));
  lane_->Submit(Job(&queued, 1));
  const Status closed = lane_->Close(clock_.Now());
  EXPECT_EQ(closed.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(closed.message(), HasSubstr("2 store calls of the get lane"));
  for (const Outcome& outcome : running) EXPECT_EQ(outcome.code(), StatusCode::kCancelled);
  EXPECT_EQ(queued.code(), StatusCode::kCancelled);
  lane_->Submit(Job(&late, 1));
  EXPECT_EQ(late.code(), StatusCode::kCancelled);
  EXPECT_EQ(lane_->Close(clock_.Now()).code(), StatusCode::kDeadlineExceeded);
  executor_->RunAll();
  EXPECT_EQ(queued.runs, 0);
  EXPECT_EQ(running[0].answers, 1);
  EXPECT_TRUE(lane_->Close(clock_.Now()).ok()) << "the calls have returned";
  EXPECT_EQ(timer_->size(), 0U);
}

TEST_F(TransferLaneTest, CloseOfAnIdleLaneIsOkAndIdempotent) {
  MakeLane();
  EXPECT_TRUE(lane_->Close(clock_.Now() + seconds(1)).ok());
  EXPECT_TRUE(lane_->Close(clock_.Now()).ok());
}

TEST_F(TransferLaneTest, AClockThatStandsStillDoesNotKeepCloseForEver) {
  MakeLane();
  Outcome outcome;
  lane_->Submit(Job(&outcome, 1));
  EXPECT_EQ(lane_->Close(clock_.Now() + seconds(1)).code(), StatusCode::kDeadlineExceeded);
}

TEST_F(TransferLaneTest, AJobMayOutliveItsLane) {
  MakeLane();
  Outcome outcome;
  lane_->Submit(Job(&outcome, 1));
  lane_.reset();
  EXPECT_EQ(outcome.code(), StatusCode::kCancelled);
  executor_->RunAll();
  Advance(seconds(20));
  EXPECT_EQ(outcome.answers, 1);
}

// With real threads.

TEST(TransferLaneThreadsTest, CloseWaitsForWhatRunsAndForItsAnswer) {
  auto executor = std::make_shared<ThreadPool>("lane", 2);
  auto timer = std::make_shared<ThreadTimer>();
  TransferLane lane({.name = "put", .workers = 2}, executor, timer, &SteadyClock());
  std::atomic<bool> answered{false};
  std::promise<void> started;
  lane.Submit({.deadline = SteadyClock().Now() + seconds(100),
               .run =
                   [&](const CallContext&) {
                     started.set_value();
                     std::this_thread::sleep_for(milliseconds(20));
                     return Status::Ok();
                   },
               .done =
                   [&](const Status&, bool) {
                     std::this_thread::sleep_for(milliseconds(20));
                     answered = true;
                   }});
  started.get_future().wait();
  EXPECT_TRUE(lane.Close(SteadyClock().Now() + seconds(100)).ok());
  EXPECT_TRUE(answered.load());
}

TEST(TransferLaneThreadsTest, ManyJobsFromManyThreadsAreEachAnsweredOnce) {
  auto executor = std::make_shared<ThreadPool>("lane", 4);
  auto timer = std::make_shared<ThreadTimer>();
  constexpr int kThreads = 4;
  constexpr int kJobs = 200;
  std::vector<std::atomic<int>> answers(kThreads * kJobs);
  {
    TransferLane lane({.name = "put",
                       .workers = 4,
                       .max_queued_bytes = 20 * kMiB,
                       .drop_oldest = true,
                       .breaker_failures = 1000000},
                      executor, timer, &SteadyClock());
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kJobs; ++i) {
          std::atomic<int>& count = answers[static_cast<size_t>(t * kJobs + i)];
          lane.Submit({.bytes = static_cast<uint64_t>(i % 4) * kMiB,
                       .deadline = SteadyClock().Now() + std::chrono::microseconds(i * 50),
                       .run = [i](const CallContext&) -> Status {
                         if (i % 7 == 0) throw std::runtime_error("x");
                         if (i % 5 == 0) return Status::Unavailable("y");
                         return Status::Ok();
                       },
                       .done = [&count](const Status&, bool) { ++count; }});
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(lane.Close(SteadyClock().Now() + seconds(100)).ok());
  }
  for (const std::atomic<int>& count : answers) EXPECT_EQ(count.load(), 1);
}

}  // namespace
}  // namespace embercache
