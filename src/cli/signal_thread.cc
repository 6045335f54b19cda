#include "src/cli/signal_thread.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "src/cli/exit_code.h"

namespace embercache {
namespace {

sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  return signals;
}

}  // namespace

SignalThread::SignalThread() {
  const sigset_t signals = Signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  std::thread([this] { Run(); }).detach();
}

void SignalThread::Run() {
  const sigset_t signals = Signals();
  for (;;) {
    int signal = 0;
    sigwait(&signals, &signal);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (signal == SIGHUP) {
      hangup_ = true;
    } else {
      if (!waiting_) _exit(kExitFine);
      if (stop_) _exit(kExitFailed);
      stop_ = true;
    }
    changed_.notify_all();
  }
}

void SignalThread::WaitForStop(const std::function<void()>& on_hangup) {
  std::unique_lock<std::mutex> lock(mutex_);
  waiting_ = true;
  while (!stop_) {
    changed_.wait(lock, [this] { return stop_ || hangup_; });
    if (!std::exchange(hangup_, false)) continue;
    lock.unlock();
    on_hangup();
    lock.lock();
  }
}

}  // namespace embercache
