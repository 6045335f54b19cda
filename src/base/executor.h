#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "embercache/clock.h"
#include "embercache/status.h"

namespace embercache {

// Runs tasks. Tasks must not throw. Thread-safe. Injected, so that a simulator can own the order.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual void Post(std::function<void()> task) = 0;
};

// Runs tasks at a time; they must be short and must not block. Thread-safe.
class Timer {
 public:
  virtual ~Timer() = default;
  // Runs `task` at `when` or soon after. Returns an id for Cancel; never 0.
  virtual uint64_t Schedule(TimePoint when, std::function<void()> task) = 0;
  // True: the task will not run. False: it ran, or is running.
  virtual bool Cancel(uint64_t id) = 0;
};

// `threads` threads and one queue. The queue is unbounded: whoever posts bounds its own work.
class ThreadPool final : public Executor {
 public:
  // `name` is the threads' name, at most 15 characters of it.
  ThreadPool(std::string name, size_t threads);
  // Stop(TimePoint::max()), unless Stop was called.
  ~ThreadPool() override;

  // Dropped once Stop was called.
  void Post(std::function<void()> task) override;
  // Runs what is queued, then ends the threads. DeadlineExceeded when some were still busy at
  // `deadline`: those are left behind and end by themselves; what they run has to own what it uses.
  Status Stop(TimePoint deadline);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// One thread that sleeps until the next task is due.
class ThreadTimer final : public Timer {
 public:
  ThreadTimer();
  // Drops what has not run, waits for what is running, unless that is what destroys the timer.
  ~ThreadTimer() override;

  uint64_t Schedule(TimePoint when, std::function<void()> task) override;
  bool Cancel(uint64_t id) override;

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace embercache
