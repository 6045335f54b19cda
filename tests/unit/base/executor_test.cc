#include "src/base/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

namespace embercache {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TimePoint In(Duration time) {
  return SteadyClock().Now() + time;
}

TEST(ThreadPoolTest, RunsWhatIsQueuedBeforeItStops) {
  std::atomic<int> ran{0};
  ThreadPool pool("pool", 2);
  for (int i = 0; i < 100; ++i) pool.Post([&] { ++ran; });
  EXPECT_TRUE(pool.Stop(In(seconds(100))).ok());
  EXPECT_EQ(ran.load(), 100);
  pool.Post([&] { ++ran; });
  EXPECT_TRUE(pool.Stop(In(seconds(100))).ok());
  EXPECT_EQ(ran.load(), 100) << "dropped once it has stopped";
}

TEST(ThreadPoolTest, AThreadThatHangsIsLeftBehindAndMayDestroyThePoolItself) {
  auto pool = std::make_shared<ThreadPool>("pool", 1);
  std::promise<void> release;
  std::promise<void> destroyed;
  // Captured before the pool, so it goes after it.
  auto on_exit = std::shared_ptr<void>(nullptr, [&](void*) { destroyed.set_value(); });
  pool->Post([on_exit, pool, future = release.get_future().share()] { future.wait(); });
  EXPECT_EQ(pool->Stop(In(Duration::zero())).code(), StatusCode::kDeadlineExceeded);
  pool.reset();
  on_exit.reset();
  release.set_value();  // the task holds the last reference to its own pool
  EXPECT_EQ(destroyed.get_future().wait_for(seconds(100)), std::future_status::ready);
}

TEST(ThreadTimerTest, RunsTasksInTheOrderOfTheirTimes) {
  ThreadTimer timer;
  std::vector<int> order;
  std::promise<void> done;
  const TimePoint base = In(milliseconds(20));
  timer.Schedule(base + milliseconds(2), [&] {
    order.push_back(2);
    done.set_value();
  });
  timer.Schedule(base + milliseconds(1), [&] { order.push_back(1); });
  timer.Schedule(base, [&] { order.push_back(0); });
  done.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
}

TEST(ThreadTimerTest, ACancelledTaskDoesNotRun) {
  std::atomic<bool> ran{false};
  ThreadTimer timer;
  const uint64_t id = timer.Schedule(In(seconds(1000)), [&] { ran = true; });
  EXPECT_NE(id, 0U);
  EXPECT_TRUE(timer.Cancel(id));
  EXPECT_FALSE(timer.Cancel(id));
  std::promise<void> done;
  const uint64_t ran_id = timer.Schedule(In(Duration::zero()), [&] { done.set_value(); });
  done.get_future().wait();
  EXPECT_FALSE(timer.Cancel(ran_id));
  EXPECT_FALSE(ran.load());
}

TEST(ThreadTimerTest, ATaskMayDestroyItsTimer) {
  auto timer = std::make_shared<ThreadTimer>();
  std::promise<void> ready;
  std::promise<void> destroyed;
  auto on_exit = std::shared_ptr<void>(nullptr, [&](void*) { destroyed.set_value(); });
  timer->Schedule(In(Duration::zero()),
                  [on_exit, timer, future = ready.get_future().share()] { future.wait(); });
  timer.reset();
  on_exit.reset();
  ready.set_value();
  EXPECT_EQ(destroyed.get_future().wait_for(seconds(100)), std::future_status::ready);
}

}  // namespace
}  // namespace embercache
