#pragma once

#include <memory>

#include "embercache/status.h"
#include "embercache/store.h"
#include "embercache/store_factory.h"

namespace embercache {

// Objects as files in a folder that several processes and machines may share
// (docs/design/stores.md). Options:
//   dir   the folder; made where it is missing. Required.
// Fails when the folder cannot be made or written. A folder that fails later fails the calls, with
// retryable errors, for as long as it does.
Result<std::unique_ptr<EmbeddingStore>> CreateFileStore(const StoreConfig& config);

}  // namespace embercache
