#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "embercache/clock.h"
#include "embercache/status.h"
#include "embercache/store.h"
#include "src/base/executor.h"

namespace embercache {

// Jobs of at most so many bytes are small.
inline constexpr uint64_t kSmallJobBytes = uint64_t{1} << 20;

struct TransferLaneOptions {
  // "get" or "put": in messages and metrics.
  std::string name;
  // Store calls in flight at once. One of them is kept for jobs of at most kSmallJobBytes, so that
  // large transfers do not hold small ones up. At least 2.
  size_t workers = 4;
  // Of jobs that wait; each counts as 4096 bytes at least. A job that is larger alone is refused
  // unless it can start at once.
  uint64_t max_queued_bytes = uint64_t{256} << 20;
  // A full queue drops its oldest job for the new one; else the new one is refused.
  bool drop_oldest = false;
  // The breaker opens after so many failures in a row, for `open_for`, doubling up to
  // `max_open_for` while probes fail. Both are jittered by up to a quarter.
  uint32_t breaker_failures = 5;
  Duration open_for = std::chrono::seconds(1);
  Duration max_open_for = std::chrono::seconds(30);
  uint64_t seed = 1;
};

// One batch for the store.
struct TransferJob {
  uint64_t bytes = 0;
  // When `done` is called at the latest, whatever the store does.
  TimePoint deadline = TimePoint::max();
  // Calls the store, on a worker. It may go on after `done` was called with DeadlineExceeded, so it
  // has to own all that it touches. For the breaker Unavailable, DeadlineExceeded and Internal are
  // failures, Cancelled says nothing, and anything else is an answer.
  std::function<Status(const CallContext&)> run;
  // Called exactly once: with run's status and true when it returned in time, else with why it did
  // not run or was not waited for, and false: then run may still be at work. On a worker, on the
  // timer, or within Submit.
  std::function<void(const Status& status, bool returned)> done;
};

struct TransferLaneStats {
  uint64_t queued = 0;
  uint64_t running = 0;  // store calls that have not returned, abandoned ones included
  uint64_t queued_bytes = 0;
  uint64_t dropped = 0;  // for want of room in the queue
  bool breaker_open = false;
};

// The way to one store in one direction: a queue bounded in bytes, deadlines, a circuit breaker. A
// store that throws, hangs or fails never holds up those who wait beyond their deadlines. Owns no
// threads: `executor` runs the jobs and has to have `workers` threads for it. Thread-safe.
class TransferLane {
 public:
  TransferLane(TransferLaneOptions options, std::shared_ptr<Executor> executor,
               std::shared_ptr<Timer> timer, const Clock* clock);
  // Close(now).
  ~TransferLane();

  void Submit(TransferJob job);
  // Refuses new jobs, and waits until `deadline` for the queued and running ones and their `done`s;
  // those left are answered with Cancelled. DeadlineExceeded when a store call had not returned.
  // Idempotent.
  Status Close(TimePoint deadline);
  TransferLaneStats Stats() const;
  // Called when the breaker closes again after having been open. Set before the first Submit.
  void OnRecovered(std::function<void()> callback);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace embercache
