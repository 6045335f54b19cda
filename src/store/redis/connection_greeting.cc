// The first words on a connection: HELLO with the credentials, else AUTH for servers that have no
// HELLO, then SELECT.

#include <fmt/format.h>

#include "src/store/redis/connection.h"

namespace embercache::redis {
namespace {

constexpr std::string_view kClientName = "embercache";

bool HasNoHello(const RespValue& reply) {
  return reply.IsError() &&
         (reply.text.starts_with("ERR unknown command") || reply.text.starts_with("NOPROTO"));
}

std::string Refusal(const RespValue& reply, const RedisConfig& config) {
  std::string text = "the server says " + reply.text.substr(0, 200);
  if (config.password.empty() && reply.text.starts_with("NOAUTH")) {
    text += "; set EMBERCACHE_REDIS_PASSWORD or password_file";
  }
  return text;
}

}  // namespace

void Connection::Greet() {
  CommandWriter writer;
  if (config_.password.empty()) {
    writer.Add({"HELLO", "3", "SETNAME", kClientName});
  } else {
    const std::string& user = config_.username;
    writer.Add({"HELLO", "3", "AUTH", user.empty() ? "default" : user, config_.password, "SETNAME",
                kClientName});
  }
  greeting_.wire = writer.Finish();
  greeting_step_ = Greeting::kHello;
  Enqueue(greeting_);
}

void Connection::GreetAsOldServer() {
  CommandWriter writer;
  if (config_.password.empty()) {
    writer.Add({"PING"});
  } else if (config_.username.empty()) {
    writer.Add({"AUTH", config_.password});
  } else {
    writer.Add({"AUTH", config_.username, config_.password});
  }
  greeting_.wire = writer.Finish();
  greeting_step_ = Greeting::kOldServer;
  Enqueue(greeting_);
}

void Connection::Greeted(TimePoint now) {
  const RespValue reply = std::move(greeting_.replies.front());
  if (greeting_step_ == Greeting::kHello && HasNoHello(reply)) {
    GreetAsOldServer();
    return;
  }
  if (reply.IsError()) {
    Close(Status::Unavailable(Refusal(reply, config_)));
    return;
  }
  if (greeting_step_ == Greeting::kHello) {
    const auto field = [&](std::string_view name) {
      const RespValue* value = reply.Find(name);
      return value ? value->text : std::string();
    };
    info_ = {field("server"), field("version"), field("mode") == "cluster"};
  }
  if (greeting_step_ != Greeting::kSelect && config_.database != 0) {
    if (info_.cluster) {
      Close(Status::Unavailable(
          fmt::format("a Cluster has database 0 alone, not {}", config_.database)));
      return;
    }
    CommandWriter writer;
    greeting_.wire =
        writer.Begin(2).Word("SELECT").Word(static_cast<uint64_t>(config_.database)).Finish();
    greeting_step_ = Greeting::kSelect;
    Enqueue(greeting_);
    return;
  }
  phase_ = Phase::kReady;
  ready_since_ = now;
  owner_.OnReady(*this);
}

}  // namespace embercache::redis
