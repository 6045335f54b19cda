#include "src/store/redis/reactor.h"

// Invariants: a request that is not done is with one server (notes.server), waiting there or on one
// of its connections; a call is in calls_ exactly while it has such requests; nothing of a call is
// touched after Answered counted its last request.

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <set>

#include "src/store/redis/resolve.h"

namespace embercache::redis {
namespace {

// Longer sleeps than this are cut in pieces, so that a clock that jumps is noticed.
constexpr Duration kLongestWait = std::chrono::seconds(1);

Status StoppedStatus() { return Status::Cancelled("the store is closed"); }

}  // namespace

Inbox::Inbox() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

Inbox::~Inbox() {
  if (fd_ >= 0) close(fd_);
}

bool Inbox::Add(Call& call) {
  MutexLock lock(mutex_);
  if (stopped_) return false;
  content_.calls.push_back(&call);
  Wake();
  return true;
}

void Inbox::Cancel(uint64_t call_id) {
  MutexLock lock(mutex_);
  if (stopped_) return;
  content_.cancelled.push_back(call_id);
  Wake();
}

void Inbox::Add(Addresses resolved) {
  MutexLock lock(mutex_);
  if (stopped_) return;
  content_.resolved.push_back(std::move(resolved));
  Wake();
}

void Inbox::Stop() {
  MutexLock lock(mutex_);
  content_.stop = true;
  Wake();
}

Inbox::Content Inbox::Take() {
  MutexLock lock(mutex_);
  uint64_t wakes = 0;
  [[maybe_unused]] const ssize_t cleared = read(fd_, &wakes, sizeof(wakes));
  stopped_ |= content_.stop;
  return std::exchange(content_, {});
}

void Inbox::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof(one));
}

Client::Reactor::Reactor(const RedisConfig& config, std::shared_ptr<TlsContext> tls,
                         const Clock& clock, int epoll_fd)
    : config_(config),
      tls_(std::move(tls)),
      clock_(clock),
      epoll_fd_(epoll_fd),
      inbox_(std::make_shared<Inbox>()),
      now_(clock.Now()) {
  epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
  epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, inbox_->fd(), &event);
  seed_ = &ServerAt(config_.endpoint);
  CommandWriter writer;
  slots_request_.wire = writer.Add({"CLUSTER", "SLOTS"}).Finish();
  Publish();
}

Client::Reactor::~Reactor() { close(epoll_fd_); }

void Client::Reactor::Loop() {
  while (!stopped_) {
    TickServers();
    dropped_.clear();
    Wait();
    TakeInbox();
    GiveUpLate();
  }
  for (Call* const call : std::vector<Call*>(calls_)) GiveUp(*call, StoppedStatus());
}

void Client::Reactor::TickServers() {
  // A server that loses a connection hands its requests to others, so once may not be enough.
  for (int round = 0; round < 8; ++round) {
    work_added_ = false;
    if (slots_wanted_at_ <= now_) AskForSlots();
    for (const auto& [name, server] : servers_) server->Tick(now_);
    if (!work_added_) break;
  }
}

void Client::Reactor::Wait() {
  TimePoint next = TimePoint::max();
  bool any_up = false;
  for (const auto& [name, server] : servers_) {
    next = std::min(next, server->next_tick());
    any_up |= server->up();
  }
  for (const Call* const call : calls_) next = std::min(next, call->deadline);
  if (any_up && slots_asked_ == nullptr) next = std::min(next, slots_wanted_at_);
  int timeout_ms = -1;
  if (work_added_) {
    timeout_ms = 0;
  } else if (next != TimePoint::max()) {
    const Duration wait = std::clamp(next - clock_.Now(), Duration(0), kLongestWait);
    timeout_ms = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(wait).count());
  }
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_fd_, events.data(), events.size(), timeout_ms);
  now_ = clock_.Now();
  for (int i = 0; i < count; ++i) {
    auto* const connection = static_cast<Connection*>(events[static_cast<size_t>(i)].data.ptr);
    if (connection != nullptr) connection->Handle(events[static_cast<size_t>(i)].events, now_);
  }
}

void Client::Reactor::TakeInbox() {
  Inbox::Content content = inbox_->Take();
  for (Call* const call : content.calls) Begin(*call);
  for (const uint64_t id : content.cancelled) {
    const auto call = std::find_if(calls_.begin(), calls_.end(),
                                   [&](const Call* c) { return c->id == id; });
    if (call != calls_.end()) GiveUp(**call, Status::Cancelled("the call was cancelled"));
  }
  for (Inbox::Addresses& resolved : content.resolved) {
    const auto server = servers_.find(resolved.server);
    if (server == servers_.end()) continue;
    server->second->SetAddresses(std::move(resolved.addresses), now_);
  }
  stopped_ |= content.stop;
}

void Client::Reactor::Begin(Call& call) {
  calls_.push_back(&call);
  call.left = call.requests.size() + 1;  // one for this function
  for (Request* const request : call.requests) {
    request->notes = {};
    request->notes.call = &call;
    Send(*request);
  }
  Answered(call);
}

void Client::Reactor::GiveUp(Call& call, const Status& why) {
  ++call.left;  // for this function: giving one request up may end others
  for (Request* const request : call.requests) {
    if (request->notes.done) continue;
    if (request->notes.server != nullptr) request->notes.server->Abandon(*request, now_);
    Complete(*request, why);
  }
  Answered(call);
}

void Client::Reactor::GiveUpLate() {
  std::vector<Call*> late;
  for (Call* const call : calls_) {
    if (call->deadline <= now_) late.push_back(call);
  }
  for (Call* const call : late) {
    // Giving one up may have ended another.
    if (std::find(calls_.begin(), calls_.end(), call) == calls_.end()) continue;
    GiveUp(*call, Status::DeadlineExceeded("the server did not answer by the call's deadline"));
  }
}

void Client::Reactor::Answered(Call& call) {
  if (--call.left > 0) return;
  std::erase(calls_, &call);
  MutexLock lock(call.mutex);
  call.finished = true;
  call.finished_changed.NotifyAll();
}

ClientState Client::Reactor::state() const {
  MutexLock lock(state_mutex_);
  return state_;
}

Client::Client(std::unique_ptr<Reactor> reactor) : reactor_(std::move(reactor)) {
  // Signals are for the application's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  MutexLock lock(stop_mutex_);
  thread_ = std::thread([this] { reactor_->Loop(); });
  pthread_setname_np(thread_.native_handle(), "ec-redis");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Client::~Client() { Stop(); }

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

void Client::Run(std::span<Request* const> requests, const CallContext& context) {
  if (requests.empty()) return;
  static std::atomic<uint64_t> next_id{1};
  Call call;
  call.id = next_id.fetch_add(1, std::memory_order_relaxed);
  call.requests = requests;
  call.deadline = context.deadline;
  if (!reactor_->inbox().Add(call)) {
    for (Request* const request : requests) request->status = StoppedStatus();
    return;
  }
  bool watch_cancelled = context.cancelled != nullptr;
  MutexLock lock(call.mutex);
  // No deadline of its own: the reactor keeps it, and the memory is in use until it says so.
  while (!call.finished) {
    if (!watch_cancelled) {
      call.finished_changed.Wait(call.mutex);
      continue;
    }
    (void)call.finished_changed.WaitUntil(call.mutex,
                                          SteadyClock().Now() + std::chrono::milliseconds(10));
    if (!call.finished && context.cancelled->load(std::memory_order_relaxed)) {
      watch_cancelled = false;
      lock.Unlock();
      reactor_->inbox().Cancel(call.id);
      lock.Lock();
    }
  }
}

ClientState Client::state() const { return reactor_->state(); }

void Client::Stop() {
  MutexLock lock(stop_mutex_);
  if (!thread_.joinable()) return;
  reactor_->inbox().Stop();
  thread_.join();
}

}  // namespace embercache::redis
