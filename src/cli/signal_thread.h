#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace embercache {

// SIGTERM, SIGINT and SIGHUP, taken by a thread of its own. Until WaitForStop is called, there is
// nothing to finish: a signal to stop ends the process with 0. Afterwards, the second one ends it
// at once with 1. Made once, before other threads, and never destroyed.
class SignalThread {
 public:
  SignalThread();

  // Until the first signal to stop. `on_hangup` runs here for each SIGHUP, or for several at once.
  void WaitForStop(const std::function<void()>& on_hangup);

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  bool waiting_ = false;
  bool stop_ = false;
  bool hangup_ = false;
};

}  // namespace embercache
