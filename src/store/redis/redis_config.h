#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "embercache/clock.h"
#include "embercache/status.h"

namespace embercache::redis {

// Where a server listens: a host and a port, or the path of a unix socket.
struct Endpoint {
  std::string host;  // a name or an address; IPv6 without brackets
  uint16_t port = 0;
  std::string unix_path;  // when not empty, host and port say nothing

  // "host:port", "[::1]:6379", "/run/redis.sock".
  std::string ToString() const;
  bool operator==(const Endpoint&) const = default;
};

// What RedisConfig::Parse reads from "url".
struct RedisUrl {
  Endpoint endpoint;
  bool tls = false;
  std::string username;
  int64_t database = -1;  // -1: none named
};

// redis://[user@]host[:port][/database], rediss:// the same over TLS, unix:///path. A URL with a
// password is refused, and never repeated in the message.
Result<RedisUrl> ParseRedisUrl(std::string_view url);

// How to reach the servers, and how to store on them.
struct RedisConfig {
  std::string url = "redis://127.0.0.1:6379";
  Endpoint endpoint;
  bool tls = false;
  std::string tls_ca_file;  // empty: the system's authorities
  std::string tls_cert_file;
  std::string tls_key_file;
  std::string username;  // empty: the server's default user
  std::string password;  // empty: no AUTH
  int64_t database = 0;
  int64_t connections = 4;  // to each server
  Duration ttl{0};          // 0: objects do not expire
  uint64_t max_value_bytes = 512ULL << 20;

  // From the store's JSON, and EMBERCACHE_REDIS_USERNAME and EMBERCACHE_REDIS_PASSWORD of the
  // environment. The configuration's own username and password_file win over the environment.
  static Result<RedisConfig> Parse(std::string_view json);
};

}  // namespace embercache::redis
