#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "embercache/clock.h"
#include "embercache/status.h"
#include "embercache/store.h"
#include "src/base/mutex.h"
#include "src/store/redis/cluster.h"
#include "src/store/redis/request.h"
#include "src/store/redis/server.h"

namespace embercache::redis {

// What the client knows of its servers.
struct ClientState {
  StoreHealth health;
  std::string software;  // of the first server reached
  std::string version;
  bool cluster = false;
  std::vector<std::string> servers;  // of a Cluster the masters; else the one
};

// Requests to one server or to a Cluster, from any thread; one thread of its own does all I/O.
class Client {
 public:
  // Connects in the background. Invalid for certificates that cannot be used and a socket's path
  // that is too long.
  static Result<std::unique_ptr<Client>> Create(const RedisConfig& config, const Clock& clock);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Sends all requests, and returns when each has its answer or its status: by the deadline, plus
  // what it takes to detach the requests' memory from their connections. A request that was on a
  // connection that broke is sent once more.
  void Run(std::span<Request* const> requests, const CallContext& context);

  ClientState state() const;

  // Answers all requests with Cancelled, now and from now on. Idempotent.
  void Stop();

 private:
  class Reactor;
  explicit Client(std::unique_ptr<Reactor> reactor);

  const std::unique_ptr<Reactor> reactor_;
  Mutex stop_mutex_;
  std::thread thread_ GUARDED_BY(stop_mutex_);
};

}  // namespace embercache::redis
