#include "src/store/redis/server.h"

// Invariants: a request is in waiting_, or on one connection, or not here. Without a connection
// that is ready, one at most is being made.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace embercache::redis {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(50);
constexpr Duration kLongestPause = std::chrono::seconds(5);
// A connection that lives shorter is not made again at once.
constexpr Duration kShortLife = std::chrono::seconds(1);

Status At(const Endpoint& endpoint, const Status& why) {
  return {why.code(), fmt::format("{}: {}", endpoint.ToString(), why.message()), why.retryable()};
}

}  // namespace

Server::Server(const RedisConfig& config, TlsContext* tls, Endpoint endpoint, int epoll_fd,
               Host& host)
    : config_(config),
      endpoint_(std::move(endpoint)),
      host_(host),
      random_(std::random_device()()) {
  for (int64_t i = 0; i < config.connections; ++i) {
    connections_.push_back(std::make_unique<Connection>(config_, tls, epoll_fd, *this));
  }
}

bool Server::up() const {
  return std::any_of(connections_.begin(), connections_.end(),
                     [](const auto& connection) { return connection->ready(); });
}

bool Server::busy() const {
  return resolving_ || std::any_of(connections_.begin(), connections_.end(),
                                   [](const auto& connection) { return connection->busy(); });
}

Status Server::Submit(Request& request) {
  if (down()) return last_error_;
  waiting_[static_cast<size_t>(request.lane)].push_back(&request);
  return Status::Ok();
}

void Server::Abandon(Request& request, TimePoint now) {
  now_ = now;
  if (request.notes.connection != nullptr) {
    request.notes.connection->Abandon(request, now);
    return;
  }
  std::deque<Request*>& queue = waiting_[static_cast<size_t>(request.lane)];
  std::erase(queue, &request);
}

void Server::SetAddresses(Result<std::vector<SocketAddress>> addresses, TimePoint now) {
  now_ = now;
  resolving_ = false;
  next_address_ = 0;
  if (addresses.ok()) {
    addresses_ = std::move(*addresses);
  } else {
    AttemptFailed(addresses.status());
  }
}

void Server::Reconnect(const Status& why) {
  for (const auto& connection : connections_) connection->Close(why);
}

void Server::Retire(const Status& why) {
  Reconnect(why);
  HandBackWaiting(At(endpoint_, why), true);
}

void Server::Tick(TimePoint now) {
  now_ = now;
  for (const auto& connection : connections_) connection->CheckTime(now);
  StartConnections(now);
  Dispatch(now);
  for (const auto& connection : connections_) connection->Flush(now);
}

TimePoint Server::next_tick() const {
  TimePoint next = TimePoint::max();
  bool any_closed = false;
  bool any_on_the_way = false;
  for (const auto& connection : connections_) {
    next = std::min(next, connection->next_check());
    any_closed |= connection->closed();
    any_on_the_way |= !connection->closed() && !connection->ready();
  }
  if (any_closed && !resolving_ && (up() || !any_on_the_way)) next = std::min(next, next_attempt_);
  return next;
}

void Server::StartConnections(TimePoint now) {
  for (const auto& connection : connections_) {
    if (now < next_attempt_ || resolving_) return;
    const bool on_the_way = !connection->closed() && !connection->ready();
    if (on_the_way && !up()) return;
    if (!connection->closed()) continue;
    if (addresses_.empty()) {
      resolving_ = true;
      host_.Resolve(*this);
      return;
    }
    const Status started =
        connection->Start(addresses_[next_address_ % addresses_.size()], endpoint_.host, now);
    if (!started.ok()) {
      AttemptFailed(Status::Unavailable(started.message()));
    } else if (!up()) {
      return;
    }
  }
}

void Server::AttemptFailed(const Status& why) {
  if (++next_address_ < addresses_.size()) {
    next_attempt_ = now_;
    return;
  }
  next_address_ = 0;
  addresses_.clear();
  const Duration pause = std::min(kLongestPause, kFirstPause * (1 << std::min(failures_, 10)));
  ++failures_;
  // Half of it is chance, so that a fleet does not come back in one instant.
  std::uniform_int_distribution<int64_t> jitter(0, pause.count() / 2);
  next_attempt_ = now_ + pause / 2 + Duration(jitter(random_));
  last_error_ = At(endpoint_, why);
  if (!up()) HandBackWaiting(last_error_, false);
  host_.OnChanged(*this);
}

void Server::HandBackWaiting(const Status& why, bool retry) {
  for (std::deque<Request*>& queue : waiting_) {
    for (Request* const request : std::exchange(queue, {})) {
      host_.OnUnanswered(*this, *request, why, retry);
    }
  }
}

void Server::Dispatch(TimePoint now) {
  for (std::deque<Request*>& queue : waiting_) {
    while (!queue.empty()) {
      Connection* const connection = FindConnection(*queue.front());
      if (connection == nullptr) break;
      Request* const request = queue.front();
      queue.pop_front();
      connection->Submit(*request, now);
    }
  }
}

// The one with the least in flight of those for the request's lane; of the others while those are
// all down. Null when it has to wait.
Connection* Server::FindConnection(const Request& request) {
  const std::span<const std::unique_ptr<Connection>> all(connections_);
  const size_t reads = (all.size() + 1) / 2;
  auto candidates = request.lane == Lane::kRead ? all.first(reads) : all.subspan(reads);
  if (std::none_of(candidates.begin(), candidates.end(),
                   [](const auto& connection) { return connection->ready(); })) {
    candidates = all;
  }
  Connection* best = nullptr;
  for (const auto& connection : candidates) {
    if (!connection->ready() || !connection->HasRoomFor(request)) continue;
    if (request.lane == Lane::kTransaction && connection->in_transaction()) continue;
    if (best == nullptr || connection->bytes_in_flight() < best->bytes_in_flight()) {
      best = connection.get();
    }
  }
  return best;
}

void Server::OnReady(Connection& connection) {
  failures_ = 0;
  next_attempt_ = now_;
  info_ = connection.info();
  last_error_ = Status::Ok();
  host_.OnChanged(*this);
}

void Server::OnReplied(Connection& connection, Request& request) {
  host_.OnReplied(*this, connection, request);
}

void Server::OnClosed(Connection& connection, bool was_ready, const Status& why,
                      const std::vector<Request*>& unanswered) {
  if (was_ready) {
    const bool short_lived = now_ - connection.ready_since() < kShortLife;
    next_attempt_ = std::max(next_attempt_, short_lived ? now_ + kFirstPause : now_);
    last_error_ = At(endpoint_, why);
    host_.OnLost();
    host_.OnChanged(*this);
  }
  for (Request* const request : unanswered) {
    host_.OnUnanswered(*this, *request, At(endpoint_, why), true);
  }
  if (!was_ready) AttemptFailed(why);
}

}  // namespace embercache::redis
