#include "src/base/executor.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <deque>
#include <map>
#include <thread>
#include <vector>

#include "src/base/mutex.h"

namespace embercache {

// Shared with the threads, so that one left behind by Stop has something to stand on.
struct ThreadPool::State {
  std::string name;
  Mutex mutex;
  CondVar work;
  CondVar ended;
  std::deque<std::function<void()>> queue GUARDED_BY(mutex);
  bool stopping GUARDED_BY(mutex) = false;
  size_t running GUARDED_BY(mutex) = 0;

  void Run() {
    MutexLock lock(mutex);
    for (;;) {
      while (queue.empty() && !stopping) work.Wait(mutex);
      if (queue.empty()) break;
      std::function<void()> task = std::move(queue.front());
      queue.pop_front();
      lock.Unlock();
      task();
      task = nullptr;
      lock.Lock();
    }
    --running;
    ended.NotifyAll();
  }
};

ThreadPool::ThreadPool(std::string name, size_t threads) : state_(std::make_shared<State>()) {
  state_->name = name.substr(0, 15);
  MutexLock lock(state_->mutex);
  state_->running = threads;
  for (size_t i = 0; i < threads; ++i) {
    std::thread thread([state = state_] { state->Run(); });
    pthread_setname_np(thread.native_handle(), state_->name.c_str());
    thread.detach();  // Stop waits for `running` instead, with a deadline
  }
}

ThreadPool::~ThreadPool() {
  bool stopped = false;
  {
    MutexLock lock(state_->mutex);
    stopped = state_->stopping;
  }
  // After a Stop this may be one of the threads it left behind: it cannot wait for itself.
  if (!stopped) (void)Stop(TimePoint::max());
}

void ThreadPool::Post(std::function<void()> task) {
  {
    MutexLock lock(state_->mutex);
    if (state_->stopping) return;
    state_->queue.push_back(std::move(task));
  }
  state_->work.NotifyOne();
}

Status ThreadPool::Stop(TimePoint deadline) {
  MutexLock lock(state_->mutex);
  state_->stopping = true;
  state_->work.NotifyAll();
  while (state_->running > 0) {
    if (deadline == TimePoint::max()) {
      state_->ended.Wait(state_->mutex);
    } else if (!state_->ended.WaitUntil(state_->mutex, deadline) && state_->running > 0) {
      return Status::DeadlineExceeded(
          fmt::format("{} threads of {} are still busy", state_->running, state_->name));
    }
  }
  return Status::Ok();
}

struct ThreadTimer::State {
  Mutex mutex;
  CondVar changed;
  bool stopping GUARDED_BY(mutex) = false;
  // What the thread sleeps until: most tasks are cancelled long before, and need not wake it.
  TimePoint wakes_at GUARDED_BY(mutex) = TimePoint::max();
  uint64_t next_id GUARDED_BY(mutex) = 1;
  std::multimap<TimePoint, std::pair<uint64_t, std::function<void()>>> tasks GUARDED_BY(mutex);
  std::map<uint64_t, TimePoint> due GUARDED_BY(mutex);

  void Run() {
    MutexLock lock(mutex);
    while (!stopping) {
      if (tasks.empty()) {
        wakes_at = TimePoint::max();
        changed.Wait(mutex);
        continue;
      }
      const TimePoint next = tasks.begin()->first;
      if (SteadyClock().Now() < next) {
        wakes_at = next;
        (void)changed.WaitUntil(mutex, next);
        continue;
      }
      std::function<void()> task = std::move(tasks.begin()->second.second);
      due.erase(tasks.begin()->second.first);
      tasks.erase(tasks.begin());
      lock.Unlock();
      task();
      task = nullptr;
      lock.Lock();
    }
  }
};

ThreadTimer::ThreadTimer() : state_(std::make_shared<State>()) {
  thread_ = std::thread([state = state_] { state->Run(); });
  pthread_setname_np(thread_.native_handle(), "timer");
}

ThreadTimer::~ThreadTimer() {
  {
    MutexLock lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.NotifyAll();
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();  // what it ran held the last reference; it ends when that returns
  } else {
    thread_.join();
  }
}

uint64_t ThreadTimer::Schedule(TimePoint when, std::function<void()> task) {
  MutexLock lock(state_->mutex);
  const uint64_t id = state_->next_id++;
  state_->tasks.emplace(when, std::make_pair(id, std::move(task)));
  state_->due.emplace(id, when);
  if (when < state_->wakes_at) state_->changed.NotifyOne();
  return id;
}

bool ThreadTimer::Cancel(uint64_t id) {
  std::function<void()> dropped;  // destroyed outside the lock
  MutexLock lock(state_->mutex);
  const auto found = state_->due.find(id);
  if (found == state_->due.end()) return false;
  auto [it, end] = state_->tasks.equal_range(found->second);
  while (it != end && it->second.first != id) ++it;
  dropped = std::move(it->second.second);
  state_->tasks.erase(it);
  state_->due.erase(found);
  lock.Unlock();
  return true;
}

}  // namespace embercache
