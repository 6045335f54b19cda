#pragma once

#include <cstdint>
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

// Requests to one server or to a Cluster, from any thread.
//
// One thread at a time has the part of driving the reactor, which does all I/O. A caller that finds
// it free takes it for the length of its call, so that a lone call costs no switch of threads; the
// answers of the others' calls come in on the way. It then hands the part to another caller that
// still waits, or to the client's own thread where connections are being made or old answers come
// in. That thread also looks after idle connections now and then.
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
  // connection that broke is sent once more. Ends the process where there is no memory for its own
  // notes, since others' requests may be in its hands.
  void Run(std::span<Request* const> requests, const CallContext& context) noexcept;

  ClientState state() const;
  // How many connections broke, or were closed by a server, since the start.
  uint64_t lost_connections() const;

  // Answers all requests with Cancelled, now and from now on. Idempotent.
  void Stop();

 private:
  class Reactor;
  explicit Client(std::unique_ptr<Reactor> reactor);

  void Watch();
  void Drive(Call& call, const CallContext& context);
  bool WaitFor(Call& call, const CallContext& context);
  void PassOn();

  const std::unique_ptr<Reactor> reactor_;  // used by who drives
  Mutex mutex_;
  CondVar part_changed_;
  bool driven_ GUARDED_BY(mutex_) = false;
  TimePoint next_look_ GUARDED_BY(mutex_);  // when the client's own thread should drive
  bool stopped_ GUARDED_BY(mutex_) = false;
  Mutex join_mutex_;
  std::thread watcher_ GUARDED_BY(join_mutex_);
};

}  // namespace embercache::redis
