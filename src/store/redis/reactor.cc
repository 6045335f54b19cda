#include "src/store/redis/reactor.h"

// Invariants: a request that is not done is with one server (notes.server), waiting there or on one
// of its connections; a call is in calls_ exactly while it has such requests; nothing of a call is
// touched after Answered counted its last request.

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace embercache::redis {
namespace {

Status StoppedStatus() {
  return Status::Cancelled("the store is closed");
}

}  // namespace

Inbox::Inbox() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

Inbox::~Inbox() {
  if (fd_ >= 0) close(fd_);
}

void Inbox::Add(Call& call) {
  MutexLock lock(mutex_);
  content_.calls.push_back(&call);
  Wake();
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

Call* Inbox::first_call() {
  MutexLock lock(mutex_);
  return content_.calls.empty() ? nullptr : content_.calls.front();
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

Client::Reactor::~Reactor() {
  close(epoll_fd_);
}

void Client::Reactor::Turn(Duration longest) {
  now_ = clock_.Now();
  TickServers();
  dropped_.clear();
  Wait(longest);
  GiveUpLate();
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

bool Client::Reactor::busy() const {
  return std::any_of(servers_.begin(), servers_.end(),
                     [](const auto& entry) { return entry.second->busy(); });
}

TimePoint Client::Reactor::next_due() const {
  if (work_added_) return now_;
  TimePoint next = TimePoint::max();
  bool any_up = false;
  for (const auto& [name, server] : servers_) {
    next = std::min(next, server->next_tick());
    any_up |= server->up();
  }
  for (const Call* const call : calls_) next = std::min(next, call->deadline);
  if (any_up && slots_asked_ == nullptr) next = std::min(next, slots_wanted_at_);
  return next;
}

void Client::Reactor::Wait(Duration longest) {
  const TimePoint due = next_due();
  if (due != TimePoint::max()) longest = std::min(longest, due - clock_.Now());
  const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(std::max(longest, Duration(0)));
  std::array<epoll_event, 64> events;
  const int count =
      epoll_wait(epoll_fd_, events.data(), events.size(), static_cast<int>(timeout.count()));
  now_ = clock_.Now();
  bool inbox_has_more = false;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    if (event.data.ptr == nullptr) {
      inbox_has_more = true;
    } else {
      static_cast<Connection*>(event.data.ptr)->Handle(event.events, now_);
    }
  }
  if (inbox_has_more) TakeInbox();
}

void Client::Reactor::TakeInbox() {
  Inbox::Content content = inbox_->Take();
  for (Call* const call : content.calls) Begin(*call);
  for (const uint64_t id : content.cancelled) {
    const auto call =
        std::find_if(calls_.begin(), calls_.end(), [&](const Call* c) { return c->id == id; });
    if (call != calls_.end()) GiveUp(**call, Status::Cancelled("the call was cancelled"));
  }
  for (Inbox::Addresses& resolved : content.resolved) {
    const auto server = servers_.find(resolved.server);
    if (server == servers_.end()) continue;
    server->second->SetAddresses(std::move(resolved.addresses), now_);
  }
  if (!content.stop) return;
  stopped_ = true;
  for (Call* const call : std::vector<Call*>(calls_)) GiveUp(*call, StoppedStatus());
}

void Client::Reactor::Begin(Call& call) {
  now_ = clock_.Now();
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
  call.changed.NotifyAll();
}

ClientState Client::Reactor::state() const {
  MutexLock lock(state_mutex_);
  return state_;
}

}  // namespace embercache::redis
