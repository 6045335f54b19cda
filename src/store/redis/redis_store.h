#pragma once

#include <memory>

#include "embercache/status.h"
#include "embercache/store.h"
#include "embercache/store_factory.h"

namespace embercache {

// A store on a Redis or Valkey server, or a Cluster of them. Options: url, database, username,
// password_file, ca_file, cert_file, key_file, connections, ttl, max_value_bytes
// (docs/operations.md). A server that does not answer is no failure.
Result<std::unique_ptr<EmbeddingStore>> CreateRedisStore(const StoreConfig& config);

}  // namespace embercache
