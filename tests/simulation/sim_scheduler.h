#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "embercache/clock.h"
#include "src/base/executor.h"

namespace embercache::simulation {

// Draws that depend on the seed alone.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t Next() { return engine_(); }
  // Of [0, end).
  uint64_t Below(uint64_t end) { return engine_() % end; }
  bool Chance(double probability) {
    return static_cast<double>(engine_() >> 11) < probability * 9007199254740992.0;
  }
  // Of [low, high), in steps of 250 µs, so that different things often fall on one moment.
  Duration Between(Duration low, Duration high) {
    constexpr Duration kStep = std::chrono::microseconds(250);
    return low + kStep * static_cast<int64_t>(Below(static_cast<uint64_t>((high - low) / kStep)));
  }

 private:
  std::mt19937_64 engine_;
};

// Virtual time on one OS thread. Timer tasks run to their end; what is posted runs on a fiber of
// its own, which may sleep in the middle of a call while everything else goes on. What is due at
// one moment runs in an order that the seed decides. Not thread-safe.
class SimScheduler final : public Clock, public Timer, public Executor {
 public:
  explicit SimScheduler(uint64_t seed);
  // REQUIRES: no fiber is left.
  ~SimScheduler() override;

  TimePoint Now() const override { return now_; }
  uint64_t Schedule(TimePoint when, std::function<void()> task) override;
  bool Cancel(uint64_t id) override;
  // As a thread does, the task starts at once or a little later.
  void Post(std::function<void()> task) override;

  // REQUIRES: called on a fiber.
  void SleepFor(Duration duration);

  // Goes on to the next event and runs it; false when there is none.
  bool Step();
  // Events still to come: sleeping fibers, tasks not started, timers neither run nor cancelled.
  size_t pending() const { return events_.size(); }
  bool on_fiber() const { return current_ != nullptr; }
  // A digest of all that has happened: equal for equal runs.
  uint64_t history() const { return history_; }

 private:
  struct Fiber;
  struct FiberDeleter {
    void operator()(Fiber* fiber) const;
  };
  using FiberPtr = std::unique_ptr<Fiber, FiberDeleter>;
  // The second number is drawn: the order of what is due at one moment.
  using Place = std::pair<TimePoint, uint64_t>;
  struct Event {
    uint64_t id;
    std::function<void()> task;
  };

  static void Entry();
  void Start(std::function<void()> task);
  void Resume(Fiber& fiber);
  // From the running fiber back to Resume.
  void Leave(bool for_good);

  TimePoint now_{std::chrono::hours(1)};
  Random random_;
  std::map<Place, Event> events_;
  std::map<uint64_t, Place> places_;  // by id
  uint64_t next_id_ = 1;
  uint64_t history_ = 0;

  ucontext_t main_{};
  const void* main_stack_ = nullptr;  // for AddressSanitizer
  size_t main_stack_bytes_ = 0;
  Fiber* current_ = nullptr;
  std::vector<FiberPtr> live_;
  std::vector<FiberPtr> spare_;
};

}  // namespace embercache::simulation
