// The reactor's other half: where a request goes, what becomes of its answer, and which servers
// there are.

#include <fmt/format.h>

#include <algorithm>

#include "src/store/redis/reactor.h"
#include "src/store/redis/resolve.h"

namespace embercache::redis {
namespace {

constexpr int kMaxRedirections = 5;
constexpr int kMaxLosses = 1;
constexpr Duration kSlotsPause = std::chrono::seconds(1);
constexpr Duration kDemotionPause = std::chrono::seconds(5);
constexpr std::string_view kAsking = "*1\r\n$6\r\nASKING\r\n";

void PutAskingFirst(Request& request) {
  Wire& wire = request.wire;
  wire.pieces.insert(wire.pieces.begin(), std::as_bytes(std::span(kAsking)));
  wire.bytes += kAsking.size();
  ++wire.commands;
  request.notes.asking = true;
}

void TakeAskingAway(Request& request) {
  Wire& wire = request.wire;
  wire.pieces.erase(wire.pieces.begin());
  wire.bytes -= kAsking.size();
  --wire.commands;
  request.notes.asking = false;
}

const RespValue* FirstError(const Request& request) {
  const auto error = std::find_if(request.replies.begin(), request.replies.end(),
                                  [](const RespValue& reply) { return reply.IsError(); });
  return error == request.replies.end() ? nullptr : &*error;
}

}  // namespace

void Client::Reactor::Send(Request& request) {
  Server* const server = Route(request);
  if (server == nullptr) {
    Complete(request,
             Status::Unavailable(fmt::format("redis: no server '{}' any more", request.server)));
    return;
  }
  SendTo(*server, request);
}

void Client::Reactor::SendTo(Server& server, Request& request) {
  Status submitted = server.Submit(request);
  if (!submitted.ok()) {
    Complete(request, std::move(submitted));
    return;
  }
  request.notes.server = &server;
  work_added_ = true;
}

Server* Client::Reactor::Route(const Request& request) {
  if (!request.server.empty()) {
    const auto named = servers_.find(request.server);
    return named == servers_.end() ? nullptr : named->second.get();
  }
  if (slots_.empty() || slots_[request.slot] == nullptr) return seed_;
  return slots_[request.slot];
}

void Client::Reactor::Complete(Request& request, Status status) {
  request.status = std::move(status);
  if (request.notes.asking) TakeAskingAway(request);
  request.notes.server = nullptr;
  request.notes.done = true;
  Call& call = *request.notes.call;
  if (request.answered && request.status.ok() && call.caller == std::this_thread::get_id()) {
    request.answered();
  }
  Answered(call);
}

void Client::Reactor::OnReplied(Server& server, Connection& connection, Request& request) {
  if (&request == &slots_request_) {
    SlotsArrived(server);
    return;
  }
  if (request.notes.asking) {
    TakeAskingAway(request);
    request.replies.erase(request.replies.begin());
  }
  if (const RespValue* const error = FirstError(request)) {
    const std::string text = error->text;
    if (Redirect(server, request, text)) return;
    const Status why = StatusOfError(text);
    Complete(request,
             {why.code(), fmt::format("{}: {}", server.endpoint().ToString(), why.message()),
              why.retryable()});
    if (text.starts_with("CLUSTERDOWN")) WantSlots();
    if (text.starts_with("READONLY")) OnDemoted(server, why);
    return;
  }
  if (request.lane == Lane::kTransaction && !request.notes.in_second_step) {
    request.notes.second = request.second_step(request.replies);
    request.notes.in_second_step = true;
    connection.Submit(request, now_);
    work_added_ = true;
    return;
  }
  Complete(request, Status::Ok());
}

// The server became a replica: its name, or the Cluster, knows who took its place. Not too often,
// since it may have been a replica all along, whose reads are of use.
void Client::Reactor::OnDemoted(Server& server, const Status& why) {
  WantSlots();
  if (now_ < demotion_heard_at_ + kDemotionPause) return;
  demotion_heard_at_ = now_;
  server.Reconnect(why);
}

bool Client::Reactor::Redirect(Server& server, Request& request, std::string_view error) {
  const auto redirection = ParseRedirection(error, server.endpoint());
  if (!redirection || ++request.notes.redirections > kMaxRedirections) return false;
  Server& target = ServerAt(redirection->endpoint);
  if (!redirection->ask) {
    cluster_ = true;
    slots_.resize(kSlots, nullptr);
    slots_[redirection->slot] = &target;
    WantSlots();
  } else if (request.wire.commands > 1) {
    return false;  // the slot is moving, and ASKING is for one command
  } else {
    PutAskingFirst(request);
  }
  Restart(request);
  SendTo(target, request);
  return true;
}

void Client::Reactor::Restart(Request& request) {
  request.notes.in_second_step = false;
  request.notes.server = nullptr;
}

void Client::Reactor::OnUnanswered(Server& /*server*/, Request& request, const Status& why,
                                   bool retry) {
  if (&request == &slots_request_) {
    slots_asked_ = nullptr;
    WantSlots();
    return;
  }
  if (request.notes.asking) TakeAskingAway(request);
  if (!retry || ++request.notes.losses > kMaxLosses) {
    Complete(request, why);
    return;
  }
  Restart(request);
  Send(request);
}

void Client::Reactor::OnChanged(Server& server) {
  if (server.up() && server.info().cluster) cluster_ = true;
  if (cluster_ && (slots_.empty() || server.down())) WantSlots();
  if (server.down()) {
    if (const uint64_t records = log_limiter_.Admit(now_); records > 0) {
      LOG_WARNING("redis: {}{}", server.last_error().message(),
                  records > 1 ? fmt::format(" ({} such records)", records) : "");
    }
  }
  Publish();
}

void Client::Reactor::Resolve(Server& server) {
  auto addresses = AddressesWithoutLookup(server.endpoint());
  if (!addresses.ok()) {
    server.SetAddresses(addresses.status(), now_);
    return;
  }
  if (*addresses) {
    server.SetAddresses(std::move(**addresses), now_);
    work_added_ = true;
    return;
  }
  LookUp(server.endpoint(),
         [inbox = inbox_, name = server.endpoint().ToString()](
             Result<std::vector<SocketAddress>> found) { inbox->Add({name, std::move(found)}); });
}

Server& Client::Reactor::ServerAt(const Endpoint& endpoint) {
  std::unique_ptr<Server>& server = servers_[endpoint.ToString()];
  if (!server) {
    server = std::make_unique<Server>(config_, tls_.get(), endpoint, epoll_fd_, *this);
  }
  return *server;
}

void Client::Reactor::WantSlots() {
  if (cluster_) {
    slots_wanted_at_ = std::min(slots_wanted_at_, std::max(now_, slots_answered_at_ + kSlotsPause));
  }
}

void Client::Reactor::AskForSlots() {
  if (slots_asked_ != nullptr) return;
  Server* asked = seed_->up() ? seed_ : nullptr;
  for (const auto& [name, server] : servers_) {
    if (asked == nullptr && server->up()) asked = server.get();
  }
  if (asked == nullptr) return;
  slots_wanted_at_ = TimePoint::max();
  slots_request_.notes = {};
  if (asked->Submit(slots_request_).ok()) slots_asked_ = asked;
}

void Client::Reactor::SlotsArrived(Server& server) {
  slots_asked_ = nullptr;
  slots_answered_at_ = now_;
  const auto ranges = ParseSlotRanges(slots_request_.replies.front(), server.endpoint());
  if (!ranges.ok()) {
    WantSlots();
    return;
  }
  std::vector<Server*> masters;
  slots_.assign(kSlots, nullptr);
  for (const SlotRange& range : *ranges) {
    Server* const master = &ServerAt(range.master);
    masters.push_back(master);
    std::fill(slots_.begin() + range.first, slots_.begin() + range.last + 1, master);
    if (master->down()) WantSlots();
  }
  work_added_ = true;
  DropOldServers(masters);
  Publish();
}

void Client::Reactor::DropOldServers(const std::vector<Server*>& masters) {
  std::vector<std::unique_ptr<Server>> old;
  for (auto entry = servers_.begin(); entry != servers_.end();) {
    Server* const server = entry->second.get();
    if (server == seed_ || std::find(masters.begin(), masters.end(), server) != masters.end()) {
      ++entry;
    } else {
      old.push_back(std::move(entry->second));
      entry = servers_.erase(entry);
    }
  }
  for (std::unique_ptr<Server>& server : old) {
    server->Retire(Status::Unavailable("it has left the Cluster"));
    dropped_.push_back(std::move(server));
  }
}

void Client::Reactor::Publish() {
  ClientState state;
  state.cluster = cluster_;
  std::vector<const Server*> servers;
  for (const auto& [name, server] : servers_) {
    const Server* const known = server.get();
    const bool counts = slots_.empty()
                            ? known == seed_
                            : std::find(slots_.begin(), slots_.end(), known) != slots_.end();
    if (counts) servers.push_back(known);
  }
  size_t up = 0;
  std::string trouble;
  for (const Server* const server : servers) {
    state.servers.push_back(server->endpoint().ToString());
    state.open_connections += server->open_connections();
    if (server->up()) {
      ++up;
      state.software = server->info().software;
      state.version = server->info().version;
    } else if (!server->last_error().ok()) {
      trouble = server->last_error().message();
    }
  }
  const bool any_down = std::any_of(servers.begin(), servers.end(),
                                    [](const Server* server) { return server->down(); });
  state.health.state = up > 0     ? StoreState::kUp
                       : any_down ? StoreState::kDown
                                  : StoreState::kStarting;
  std::string& detail = state.health.detail;
  detail = fmt::format("{} of {} servers up ({}{})", up, servers.size(), state.servers.front(),
                       servers.size() > 1 ? ", …" : "");
  if (up == 0 && !any_down) detail = "connecting to " + state.servers.front();
  if (!trouble.empty()) detail += "; " + trouble;
  MutexLock lock(state_mutex_);
  state_ = std::move(state);
}

}  // namespace embercache::redis
