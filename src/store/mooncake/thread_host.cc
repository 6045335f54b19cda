#include "src/store/mooncake/thread_host.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <thread>
#include <utility>

#include "src/base/mutex.h"
#include "src/store/mooncake/bridge_server.h"

namespace embercache::mooncake {

// Outlives the host where the client hangs.
struct ThreadHost::State {
  explicit State(Descriptor socket) : control(std::move(socket)), server(control.get()) {}

  void Run() {
    server.Run();
    server.End();
    MutexLock lock(mutex);
    ended = true;
    changed.NotifyAll();
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(end.get(), &one, sizeof one);
  }

  const Descriptor control;
  const Descriptor end{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  BridgeServer server;
  Mutex mutex;
  CondVar changed;
  bool ended GUARDED_BY(mutex) = false;
  bool abandoned GUARDED_BY(mutex) = false;
};

ThreadHost::ThreadHost(std::shared_ptr<State> state) : state_(std::move(state)) {}
ThreadHost::~ThreadHost() = default;

Result<std::unique_ptr<Host>> ThreadHost::Start(Descriptor control) {
  auto state = std::make_shared<State>(std::move(control));
  if (state->end.get() < 0) return Status::FromErrno(errno, "mooncake: eventfd");
  // The program's signals are for its other threads; those that the client starts inherit this.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([state] { state->Run(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return std::unique_ptr<Host>(new ThreadHost(std::move(state)));
}

int ThreadHost::end_fd() const {
  return state_->end.get();
}

void ThreadHost::Kill() {
  shutdown(state_->control.get(), SHUT_RDWR);
}

std::string ThreadHost::Reap() {
  MutexLock lock(state_->mutex);
  while (!state_->ended && !state_->abandoned) state_->changed.Wait(state_->mutex);
  return state_->ended ? "its threads have ended" : "it hangs, and was left behind";
}

void ThreadHost::Abandon() {
  MutexLock lock(state_->mutex);
  state_->abandoned = true;
  state_->changed.NotifyAll();
}

}  // namespace embercache::mooncake
