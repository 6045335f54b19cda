#pragma once

#include <memory>

#include "embercache/status.h"
#include "embercache/store.h"
#include "embercache/store_factory.h"

namespace embercache {

// Objects in this process's memory, for tests and for one process: they go when the store does.
// Options: max_bytes (default 1 GiB): the least recently used objects make room.
Result<std::unique_ptr<EmbeddingStore>> CreateMemoryStore(const StoreConfig& config);

}  // namespace embercache
