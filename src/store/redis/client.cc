#include "src/store/redis/client.h"

// Invariants: the reactor is used by the thread that set driven_, or by the one that the part was
// passed to; a call that is not finished is either the driver's own, or its thread waits in
// WaitFor, so that there is always somebody to pass the part to.

#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <utility>

#include "src/store/redis/reactor.h"
#include "src/store/redis/resolve.h"

namespace embercache::redis {
namespace {

// How often idle connections are looked at.
constexpr Duration kWatchPause = std::chrono::milliseconds(500);
// Waits are cut in pieces of this, so that a clock that jumps is noticed.
constexpr Duration kLongestWait = std::chrono::seconds(1);
// A flag that says nothing when it changes is looked at this often.
constexpr Duration kCancelPause = std::chrono::milliseconds(10);

bool IsCancelled(const CallContext& context) {
  return context.cancelled != nullptr && context.cancelled->load(std::memory_order_relaxed);
}

}  // namespace

Client::Client(std::unique_ptr<Reactor> reactor) : reactor_(std::move(reactor)) {
  // Signals are for the application's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  MutexLock lock(join_mutex_);
  watcher_ = std::thread([this] { Watch(); });
  pthread_setname_np(watcher_.native_handle(), "ec-redis");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Client::~Client() {
  Stop();
}

Result<std::unique_ptr<Client>> Client::Create(const RedisConfig& config, const Clock& clock) {
  EMBERCACHE_RETURN_IF_ERROR(AddressesWithoutLookup(config.endpoint).status());
  std::shared_ptr<TlsContext> tls;
  if (config.tls) {
    EMBERCACHE_ASSIGN_OR_RETURN(tls, TlsContext::Create(config));
  }
  const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd < 0) return Status::FromErrno(errno, "redis: epoll_create1");
  auto reactor = std::make_unique<Reactor>(config, std::move(tls), clock, epoll_fd);
  if (reactor->inbox().fd() < 0) return Status::ResourceExhausted("redis: no eventfd to be had");
  return std::unique_ptr<Client>(new Client(std::move(reactor)));
}

void Client::Run(std::span<Request* const> requests, const CallContext& context) noexcept {
  if (requests.empty()) return;
  static std::atomic<uint64_t> next_id{1};
  Call call;
  call.id = next_id.fetch_add(1, std::memory_order_relaxed);
  call.caller = std::this_thread::get_id();
  call.requests = requests;
  call.deadline = context.deadline;
  bool drive = false;
  {
    MutexLock lock(mutex_);
    if (stopped_) {
      for (Request* const request : requests) {
        request->status = Status::Cancelled("the store is closed");
      }
      return;
    }
    drive = !driven_;
    driven_ = true;
    // Under the lock, so that who drives sees it before passing the part on.
    if (!drive) reactor_->inbox().Add(call);
  }
  if (drive) {
    reactor_->Begin(call);
  } else {
    drive = WaitFor(call, context);
  }
  if (drive) Drive(call, context);
}

// True when this thread has to drive.
bool Client::WaitFor(Call& call, const CallContext& context) {
  bool look_for_cancel = context.cancelled != nullptr;
  MutexLock lock(call.mutex);
  // No deadline of its own: who drives keeps it, and the memory is in use until then.
  while (!call.finished && !call.drives) {
    if (!look_for_cancel) {
      call.changed.Wait(call.mutex);
      continue;
    }
    (void)call.changed.WaitUntil(call.mutex, SteadyClock().Now() + kCancelPause);
    if (IsCancelled(context)) {
      look_for_cancel = false;
      reactor_->inbox().Cancel(call.id);
    }
  }
  return call.drives;
}

void Client::Drive(Call& call, const CallContext& context) {
  bool look_for_cancel = context.cancelled != nullptr;
  for (;;) {
    {
      MutexLock lock(call.mutex);
      if (call.finished) break;
    }
    reactor_->Turn(look_for_cancel ? kCancelPause : kLongestWait);
    if (look_for_cancel && IsCancelled(context)) {
      look_for_cancel = false;
      reactor_->inbox().Cancel(call.id);
    }
  }
  PassOn();
}

// Ends this thread's part.
void Client::PassOn() {
  MutexLock lock(mutex_);
  if (Call* const next = reactor_->waiting_call()) {
    MutexLock call_lock(next->mutex);
    next->drives = true;
    next->changed.NotifyAll();
    return;
  }
  driven_ = false;
  const Duration until_due = reactor_->next_due() - reactor_->clock().Now();
  const TimePoint look =
      SteadyClock().Now() + (reactor_->busy() ? Duration(0) : std::min(kWatchPause, until_due));
  // Where nothing is under way, the watcher wakes by itself.
  if (look < std::exchange(next_look_, look) || stopped_) part_changed_.NotifyAll();
}

// The client's own thread: drives where nobody else does, and where there is a reason to.
void Client::Watch() {
  MutexLock lock(mutex_);
  for (;;) {
    const TimePoint now = SteadyClock().Now();
    if (driven_ || (!stopped_ && now < next_look_)) {
      (void)part_changed_.WaitUntil(mutex_, driven_ ? now + kWatchPause : next_look_);
      continue;
    }
    if (reactor_->stopped()) return;
    driven_ = true;
    lock.Unlock();
    do {
      reactor_->Turn(reactor_->busy() ? kLongestWait : Duration(0));
    } while (reactor_->busy() && reactor_->waiting_call() == nullptr && !reactor_->stopped());
    PassOn();
    lock.Lock();
  }
}

ClientState Client::state() const {
  return reactor_->state();
}

uint64_t Client::lost_connections() const {
  return reactor_->lost_connections();
}

void Client::Stop() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    reactor_->inbox().Stop();
    part_changed_.NotifyAll();
  }
  MutexLock lock(join_mutex_);
  if (watcher_.joinable()) watcher_.join();
}

}  // namespace embercache::redis
