#pragma once

#include <array>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "src/store/redis/connection.h"

namespace embercache::redis {

// One server: its connections, the requests that wait for one, and the pace of reconnecting. Used
// from the client's thread only.
class Server final : public Connection::Owner {
 public:
  class Host {
   public:
    // The replies of the request's step are in; its next one has to go to the same connection.
    virtual void OnReplied(Server& server, Connection& connection, Request& request) = 0;
    // Its connection was lost, or none could be had; `retry` says whether sending it again makes
    // sense.
    virtual void OnUnanswered(Server& server, Request& request, const Status& why, bool retry) = 0;
    // A connection that was ready is gone.
    virtual void OnLost() = 0;
    // up() or last_error() are others than before.
    virtual void OnChanged(Server& server) = 0;
    // Look the host's name up, and call SetAddresses.
    virtual void Resolve(Server& server) = 0;

   protected:
    ~Host() = default;
  };

  Server(const RedisConfig& config, TlsContext* tls, Endpoint endpoint, int epoll_fd, Host& host);

  const Endpoint& endpoint() const { return endpoint_; }
  bool up() const;
  // Not up, and the last attempt to change that failed.
  bool down() const { return failures_ > 0 && !up(); }
  const Status& last_error() const { return last_error_; }
  // A connection is being made, or answers are to come.
  bool busy() const;
  // Of a server that is or was up.
  const ServerInfo& info() const { return info_; }

  // Queues a request. Not OK, and nothing done, when the server is down.
  Status Submit(Request& request);
  // Lets go of a request that was submitted and not answered; as Connection::Abandon.
  void Abandon(Request& request, TimePoint now);
  void SetAddresses(Result<std::vector<SocketAddress>> addresses, TimePoint now);
  // Closes all connections; they are opened again at once.
  void Reconnect(const Status& why);
  // Closes all connections and hands back all requests, to be sent elsewhere.
  void Retire(const Status& why);

  // Does what is due: timeouts, connects, sending.
  void Tick(TimePoint now);
  // When Tick may have something to do without any event.
  TimePoint next_tick() const;

  void OnReady(Connection& connection) override;
  void OnReplied(Connection& connection, Request& request) override;
  void OnClosed(Connection& connection, bool was_ready, const Status& why,
                const std::vector<Request*>& unanswered) override;

 private:
  void StartConnections(TimePoint now);
  void AttemptFailed(const Status& why);
  void HandBackWaiting(const Status& why, bool retry);
  void Dispatch(TimePoint now);
  Connection* FindConnection(const Request& request);

  const RedisConfig& config_;
  const Endpoint endpoint_;
  Host& host_;
  std::vector<std::unique_ptr<Connection>> connections_;  // the first half is for reads
  std::array<std::deque<Request*>, 3> waiting_;           // by lane

  std::vector<SocketAddress> addresses_;
  size_t next_address_ = 0;
  bool resolving_ = false;
  int failures_ = 0;  // attempts since the last success
  TimePoint next_attempt_{};
  TimePoint now_{};  // of the turn
  Status last_error_;
  ServerInfo info_;
  std::minstd_rand random_;
};

}  // namespace embercache::redis
