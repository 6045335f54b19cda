#pragma once

#include <string>
#include <string_view>

#include "embercache/clock.h"
#include "embercache/status.h"

namespace embercache {

// Where a server listens.
struct ServerAddress {
  std::string host;
  std::string port;

  std::string Authority() const;
};

// "http://127.0.0.1:8080", "[::1]:8080", "localhost"; the port is 8080 by default. Invalid names
// what was given.
Result<ServerAddress> ParseServerAddress(std::string_view text);

// The body that a server answers to GET `path`, within `time`. Unavailable: it does not answer, or
// with another status than 200; the message of its answer is kept.
Result<std::string> FetchText(const ServerAddress& server, std::string_view path, Duration time);

}  // namespace embercache
