#pragma once

#include <memory>

#include "embercache/status.h"
#include "embercache/store.h"
#include "embercache/store_factory.h"

namespace embercache {

// Mooncake Store through a client in a process of its own. Options: docs/operations.md.
Result<std::unique_ptr<EmbeddingStore>> CreateMooncakeStore(const StoreConfig& config);

}  // namespace embercache
