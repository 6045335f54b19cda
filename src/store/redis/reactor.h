#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/base/log.h"
#include "src/base/mutex.h"
#include "src/store/redis/client.h"

namespace embercache::redis {

// A caller's requests while they run. Lives on the caller's stack.
struct Call {
  uint64_t id = 0;
  std::thread::id caller;
  std::span<Request* const> requests;
  TimePoint deadline;
  size_t left = 0;  // requests without an answer; the reactor's own

  Mutex mutex;
  CondVar changed;
  bool finished GUARDED_BY(mutex) = false;
  bool drives GUARDED_BY(mutex) = false;  // its caller has to drive the reactor from now on
};

// What other threads have for the reactor, and the eventfd that wakes it. Outlives the reactor
// where a look-up of a name still runs.
class Inbox {
 public:
  struct Addresses {
    std::string server;
    Result<std::vector<SocketAddress>> addresses;
  };
  struct Content {
    std::vector<Call*> calls;
    std::vector<uint64_t> cancelled;
    std::vector<Addresses> resolved;
    bool stop = false;
  };

  Inbox();
  ~Inbox();
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  int fd() const { return fd_; }
  void Add(Call& call);
  void Cancel(uint64_t call_id);
  void Add(Addresses resolved);
  void Stop();
  // Takes all that is there. After `stop` nothing is added any more.
  Content Take();
  // The first call that nobody has begun.
  Call* first_call();

 private:
  void Wake();

  const int fd_;
  Mutex mutex_;
  Content content_ GUARDED_BY(mutex_);
  bool stopped_ GUARDED_BY(mutex_) = false;
};

// Connections, routing, redirections, deadlines. Used by one thread at a time, but for what is said
// to be thread-safe.
class Client::Reactor final : public Server::Host {
 public:
  Reactor(const RedisConfig& config, std::shared_ptr<TlsContext> tls, const Clock& clock,
          int epoll_fd);
  ~Reactor();

  // Sends what is due, waits for events up to `longest`, and does what they ask for.
  void Turn(Duration longest);
  void Begin(Call& call);
  void GiveUp(Call& call, const Status& why);
  // A call that waits for answers, or one that waits to begin; null without any.
  Call* waiting_call() { return calls_.empty() ? inbox_->first_call() : calls_.front(); }
  // Something is under way that no call waits for.
  bool busy() const;
  // When Turn will have something to do without any event.
  TimePoint next_due() const;
  bool stopped() const { return stopped_; }

  Inbox& inbox() { return *inbox_; }                               // thread-safe
  const Clock& clock() const { return clock_; }                    // thread-safe
  ClientState state() const;                                       // thread-safe
  uint64_t lost_connections() const { return lost_connections_; }  // thread-safe

  void OnReplied(Server& server, Connection& connection, Request& request) override;
  void OnUnanswered(Server& server, Request& request, const Status& why, bool retry) override;
  void OnLost() override { ++lost_connections_; }
  void OnChanged(Server& server) override;
  void Resolve(Server& server) override;

 private:
  void Wait(Duration longest);
  void TakeInbox();
  void GiveUpLate();
  void Answered(Call& call);
  void TickServers();

  void Send(Request& request);
  void SendTo(Server& server, Request& request);
  Server* Route(const Request& request);
  void Complete(Request& request, Status status);
  void OnDemoted(Server& server, const Status& why);
  bool Redirect(Server& server, Request& request, std::string_view error);
  void Restart(Request& request);

  Server& ServerAt(const Endpoint& endpoint);
  void WantSlots();
  void AskForSlots();
  void SlotsArrived(Server& server);
  void DropOldServers(const std::vector<Server*>& masters);
  void Publish();

  const RedisConfig config_;
  const std::shared_ptr<TlsContext> tls_;
  const Clock& clock_;
  const int epoll_fd_;
  const std::shared_ptr<Inbox> inbox_;

  TimePoint now_;
  std::map<std::string, std::unique_ptr<Server>> servers_;
  std::vector<std::unique_ptr<Server>> dropped_;  // until the end of the turn
  Server* seed_ = nullptr;
  std::vector<Call*> calls_;
  bool work_added_ = false;  // something was submitted since the last round of ticks
  bool stopped_ = false;

  bool cluster_ = false;
  std::vector<Server*> slots_;  // of a Cluster, once known
  Request slots_request_;
  Server* slots_asked_ = nullptr;
  TimePoint slots_wanted_at_ = TimePoint::max();
  TimePoint slots_answered_at_{};
  TimePoint demotion_heard_at_{};

  LogLimiter log_limiter_;
  std::atomic<uint64_t> lost_connections_{0};
  mutable Mutex state_mutex_;
  ClientState state_ GUARDED_BY(state_mutex_);
};

}  // namespace embercache::redis
