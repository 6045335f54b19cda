#include "src/io/transfer_lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <random>
#include <vector>

#include "src/base/log.h"
#include "src/base/mutex.h"
#include "src/base/sync_point.h"

// Invariants: a job's `done` is called by whoever is first in Pending::Answer, once, outside the
// lock; `running` counts jobs given to the executor whose run() has not returned, at most `workers`
// of them, at most `workers` - 1 of them large; no job in the queue may start; `answering` counts
// the threads that may be about to call a `done`, so that Close can wait for them.

namespace embercache {
namespace {

// A store is asked to answer a little earlier than its caller needs it, so that it can say what it
// has done.
constexpr Duration kMaxMargin = std::chrono::milliseconds(50);
// What a job takes of the queue's bound at least, so that jobs without bytes are bounded too.
constexpr uint64_t kMinJobBytes = 4096;

struct Pending {
  TransferJob job;
  std::atomic<bool> answered{false};
  std::atomic<bool> cancelled{false};
  uint64_t timer_id = 0;
  bool probe = false;
  // Counted by the breaker: at its deadline, or when it returned before.
  bool judged = false;

  bool small() const { return job.bytes <= kSmallJobBytes; }
  uint64_t queue_bytes() const { return std::max(job.bytes, kMinJobBytes); }
  // Answers unless somebody has.
  void Answer(const Status& status, bool returned = false) {
    if (answered.exchange(true)) return;
    const auto done = std::exchange(job.done, nullptr);
    done(status, returned);
  }
};
using PendingPtr = std::shared_ptr<Pending>;

bool IsFailure(const Status& status) {
  return status.code() == StatusCode::kUnavailable ||
         status.code() == StatusCode::kDeadlineExceeded || status.code() == StatusCode::kInternal;
}

}  // namespace

struct TransferLane::State : public std::enable_shared_from_this<TransferLane::State> {
  TransferLaneOptions options;
  std::shared_ptr<Executor> executor;
  std::shared_ptr<Timer> timer;
  const Clock* clock = nullptr;
  std::function<void()> on_recovered;

  mutable Mutex mutex;
  CondVar idle;
  std::deque<PendingPtr> queue GUARDED_BY(mutex);
  std::vector<PendingPtr> in_flight GUARDED_BY(mutex);
  uint64_t queued_bytes GUARDED_BY(mutex) = 0;
  size_t running GUARDED_BY(mutex) = 0;
  size_t running_large GUARDED_BY(mutex) = 0;
  size_t answering GUARDED_BY(mutex) = 0;
  uint64_t dropped GUARDED_BY(mutex) = 0;
  bool closed GUARDED_BY(mutex) = false;
  // Breaker.
  uint32_t failures GUARDED_BY(mutex) = 0;
  bool open GUARDED_BY(mutex) = false;
  bool probing GUARDED_BY(mutex) = false;
  TimePoint probe_at GUARDED_BY(mutex);
  Duration open_for GUARDED_BY(mutex){};
  std::mt19937_64 random GUARDED_BY(mutex);

  bool MayStart(const Pending& pending) const REQUIRES(mutex) {
    return running < options.workers && (pending.small() || running_large + 1 < options.workers);
  }

  bool Fits(const Pending& pending) const REQUIRES(mutex) {
    return queued_bytes + pending.queue_bytes() <= options.max_queued_bytes;
  }

  // Why a job may not enter now; OK when it may. Half-open: one probe at a time goes through.
  Status Admit(Pending& pending) REQUIRES(mutex) {
    if (closed) return Status::Cancelled(fmt::format("the {} lane is closed", options.name));
    const bool too_large = pending.queue_bytes() > options.max_queued_bytes;
    if (!MayStart(pending) && (too_large || (!options.drop_oldest && !Fits(pending)))) {
      ++dropped;
      return Status::ResourceExhausted(
          fmt::format("no room for {} bytes in the {} lane's queue: {} of {} are in use",
                      pending.job.bytes, options.name, queued_bytes, options.max_queued_bytes));
    }
    if (open) {
      if (probing || clock->Now() < probe_at) {
        return Status::Unavailable(fmt::format("the {} lane's breaker is open", options.name));
      }
      probing = true;
      pending.probe = true;
    }
    return Status::Ok();
  }

  // Takes queued jobs that may start now.
  std::vector<PendingPtr> Startable() REQUIRES(mutex) {
    std::vector<PendingPtr> start;
    for (auto it = queue.begin(); it != queue.end() && running < options.workers;) {
      if (!MayStart(**it)) {
        ++it;
        continue;
      }
      ++running;
      if (!(*it)->small()) ++running_large;
      queued_bytes -= (*it)->queue_bytes();
      in_flight.push_back(*it);
      start.push_back(std::move(*it));
      it = queue.erase(it);
    }
    return start;
  }

  void Start(std::vector<PendingPtr> jobs) EXCLUDES(mutex) {
    for (PendingPtr& pending : jobs) {
      executor->Post([self = shared_from_this(), pending] { self->Run(pending); });
    }
  }

  void Run(const PendingPtr& pending) EXCLUDES(mutex) {
    Status status = Status::DeadlineExceeded("the deadline passed before the store was called");
    const bool abandoned = pending->answered.load() || clock->Now() >= pending->job.deadline;
    if (!abandoned) status = Call(*pending);
    SYNC_POINT("lane: returned");
    if (pending->timer_id != 0) timer->Cancel(pending->timer_id);
    std::vector<PendingPtr> next;
    bool recovered = false;
    {
      MutexLock lock(mutex);
      --running;
      if (!pending->small()) --running_large;
      ++answering;
      std::erase(in_flight, pending);
      recovered = Judge(*pending, status);
      next = Startable();
    }
    Start(std::move(next));
    if (recovered && on_recovered) on_recovered();
    SYNC_POINT("lane: before answer");
    pending->Answer(status, !abandoned);
    pending->job.run = nullptr;  // lets go of what the job owned
    EndAnswering();
  }

  void EndAnswering() EXCLUDES(mutex) {
    MutexLock lock(mutex);
    --answering;
    if (IsIdle()) idle.NotifyAll();
  }

  bool IsIdle() const REQUIRES(mutex) { return running == 0 && answering == 0 && queue.empty(); }

  Status Call(Pending& pending) {
    CallContext context;
    context.cancelled = &pending.cancelled;
    context.deadline = pending.job.deadline;
    if (context.deadline != TimePoint::max()) {
      const Duration left = std::max(Duration::zero(), context.deadline - clock->Now());
      context.deadline -= std::min<Duration>(kMaxMargin, left / 10);
    }
    try {
      return pending.job.run(context);
    } catch (const std::exception& e) {
      return Status::Internal(fmt::format("the store threw: {}", e.what()));
    } catch (...) {
      return Status::Internal("the store threw something that is no std::exception");
    }
  }

  // Keeps the breaker's books, once a job; true when it closes.
  bool Judge(Pending& pending, const Status& status) REQUIRES(mutex) {
    if (std::exchange(pending.judged, true)) return false;
    if (pending.probe) probing = false;
    if (status.code() == StatusCode::kCancelled) return false;  // says nothing about the store
    if (!IsFailure(status)) {
      failures = 0;
      if (!open) return false;
      open = false;
      LOG_INFO("{} lane: the store answers again, the breaker closes", options.name);
      return true;
    }
    ++failures;
    if (open && !pending.probe) return false;
    if (open) {
      open_for = std::min(open_for * 2, options.max_open_for);
    } else if (failures >= options.breaker_failures) {
      open = true;
      open_for = options.open_for;
      LOG_WARNING("{} lane: {} failures in a row, the breaker opens: {}", options.name, failures,
                  status.ToString());
    } else {
      return false;
    }
    probe_at =
        clock->Now() + open_for +
        Duration(static_cast<int64_t>(random() % static_cast<uint64_t>(open_for.count() / 4 + 1)));
    return false;
  }

  // The deadline passed: whoever waits is answered, the store call may still be running.
  void Expire(const PendingPtr& pending) EXCLUDES(mutex) {
    SYNC_POINT("lane: deadline");
    pending->cancelled = true;
    bool was_queued = false;
    {
      MutexLock lock(mutex);
      ++answering;
      const auto it = std::find(queue.begin(), queue.end(), pending);
      if (it != queue.end()) {
        queue.erase(it);
        queued_bytes -= pending->queue_bytes();
        was_queued = true;
      }
      // Nothing returns from a store that hangs, so the deadline is what tells.
      (void)Judge(*pending, Status::DeadlineExceeded("no answer in time"));
    }
    pending->Answer(Status::DeadlineExceeded(fmt::format(
        "the store did not answer in time ({})", was_queued ? "still queued" : "call in flight")));
    if (was_queued) pending->job.run = nullptr;
    EndAnswering();
  }
};

TransferLane::TransferLane(TransferLaneOptions options, std::shared_ptr<Executor> executor,
                           std::shared_ptr<Timer> timer, const Clock* clock)
    : state_(std::make_shared<State>()) {
  options.workers = std::max<size_t>(2, options.workers);
  state_->executor = std::move(executor);
  state_->timer = std::move(timer);
  state_->clock = clock;
  MutexLock lock(state_->mutex);
  state_->random.seed(options.seed);
  state_->options = std::move(options);
}

TransferLane::~TransferLane() {
  (void)Close(state_->clock->Now());
}

void TransferLane::OnRecovered(std::function<void()> callback) {
  state_->on_recovered = std::move(callback);
}

void TransferLane::Submit(TransferJob job) {
  State& state = *state_;
  auto pending = std::make_shared<Pending>();
  pending->job = std::move(job);
  std::vector<PendingPtr> dropped;
  std::vector<PendingPtr> start;
  Status refused;
  {
    MutexLock lock(state.mutex);
    ++state.answering;
    refused = state.Admit(*pending);
    if (refused.ok()) {
      while (!state.MayStart(*pending) && !state.Fits(*pending)) {
        state.queued_bytes -= state.queue.front()->queue_bytes();
        if (state.queue.front()->probe) state.probing = false;
        dropped.push_back(std::move(state.queue.front()));
        state.queue.pop_front();
        ++state.dropped;
      }
      if (pending->job.deadline != TimePoint::max()) {
        pending->timer_id = state.timer->Schedule(
            pending->job.deadline, [self = state_, pending] { self->Expire(pending); });
      }
      state.queued_bytes += pending->queue_bytes();
      state.queue.push_back(pending);
      start = state.Startable();
    }
  }
  state.Start(std::move(start));
  for (const PendingPtr& old : dropped) {
    state.timer->Cancel(old->timer_id);
    old->Answer(Status::ResourceExhausted("dropped: newer jobs needed the queue's room"));
  }
  if (!refused.ok()) pending->Answer(refused);
  state.EndAnswering();
}

Status TransferLane::Close(TimePoint deadline) {
  State& state = *state_;
  std::vector<PendingPtr> left;
  size_t running = 0;
  {
    MutexLock lock(state.mutex);
    state.closed = true;
    // The wait is one of real time, also where the clock is not.
    while (!state.IsIdle() && state.clock->Now() < deadline) {
      if (!state.idle.WaitUntil(state.mutex, deadline)) break;
    }
    left.assign(state.queue.begin(), state.queue.end());
    state.queue.clear();
    state.queued_bytes = 0;
    running = state.running;
    left.insert(left.end(), state.in_flight.begin(), state.in_flight.end());
  }
  for (const PendingPtr& pending : left) {
    pending->cancelled = true;
    if (pending->timer_id != 0) state.timer->Cancel(pending->timer_id);
    pending->Answer(Status::Cancelled(fmt::format("the {} lane closed", state.options.name)));
  }
  if (running == 0) return Status::Ok();
  return Status::DeadlineExceeded(
      fmt::format("{} store calls of the {} lane have not returned", running, state.options.name));
}

TransferLaneStats TransferLane::Stats() const {
  MutexLock lock(state_->mutex);
  return {.queued = state_->queue.size(),
          .running = state_->running,
          .queued_bytes = state_->queued_bytes,
          .dropped = state_->dropped,
          .breaker_open = state_->open};
}

}  // namespace embercache
