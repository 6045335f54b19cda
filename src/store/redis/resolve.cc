#include "src/store/redis/resolve.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/un.h>

#include <cstring>
#include <thread>
#include <utility>

namespace embercache::redis {
namespace {

Result<std::vector<SocketAddress>> Resolve(const Endpoint& endpoint, int flags) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICSERV | flags;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  if (error != 0) {
    return Status::Unavailable(
        fmt::format("host name '{}': {}", endpoint.host, gai_strerror(error)));
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
  }
  freeaddrinfo(found);
  return addresses;
}

}  // namespace

Result<std::optional<std::vector<SocketAddress>>> AddressesWithoutLookup(const Endpoint& endpoint) {
  using Addresses = std::optional<std::vector<SocketAddress>>;
  if (endpoint.unix_path.empty()) {
    auto addresses = Resolve(endpoint, AI_NUMERICHOST);
    return addresses.ok() ? Addresses(std::move(*addresses)) : Addresses();
  }
  SocketAddress address;
  auto* const where = reinterpret_cast<sockaddr_un*>(&address.storage);
  if (endpoint.unix_path.size() >= sizeof(where->sun_path)) {
    return Status::Invalid(
        fmt::format("redis: url: the socket's path '{}' has {} bytes; at most "
                    "{} are possible",
                    endpoint.unix_path, endpoint.unix_path.size(), sizeof(where->sun_path) - 1));
  }
  where->sun_family = AF_UNIX;
  std::memcpy(where->sun_path, endpoint.unix_path.c_str(), endpoint.unix_path.size() + 1);
  address.length = sizeof(sockaddr_un);
  return Addresses({address});
}

void LookUp(Endpoint endpoint,
            std::function<void(Result<std::vector<SocketAddress>> addresses)> done) {
  std::thread([endpoint = std::move(endpoint), done = std::move(done)] {
    done(Resolve(endpoint, 0));
  }).detach();
}

}  // namespace embercache::redis
