#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "embercache/status.h"
#include "src/store/redis/connection.h"

namespace embercache::redis {

// The addresses of an endpoint that needs no name service: a unix socket, an IP address. Invalid
// for a socket's path that is too long; nullopt for names.
Result<std::optional<std::vector<SocketAddress>>> AddressesWithoutLookup(const Endpoint& endpoint);

// Looks a name up on a thread of its own, since nothing bounds how long that takes, and tells
// `done` on that thread. What `done` refers to has to outlive the look-up.
void LookUp(Endpoint endpoint,
            std::function<void(Result<std::vector<SocketAddress>> addresses)> done);

}  // namespace embercache::redis
