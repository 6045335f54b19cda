#pragma once

#include <memory>

#include "embercache/status.h"
#include "embercache/store.h"
#include "embercache/store_factory.h"

namespace embercache {

// Objects as files in a folder that several processes and machines may share
// (docs/design/stores.md). Options:
//   dir        the folder; made where it is missing. Required.
//   max_bytes  the budget that all processes on the folder share (10GiB); the least recently used
//              objects make room.
//   ttl        after this time without a put of its key an object is a miss ("0s": never); at least
//              "1s".
//   fsync      whether an object's bytes are on the disk before it appears (false: a power cut may
//              leave objects that are not whole, which the layer above recognises).
// Fails when the folder cannot be made or written. A folder that fails later fails the calls, with
// retryable errors, for as long as it does.
Result<std::unique_ptr<EmbeddingStore>> CreateFileStore(const StoreConfig& config);

// The same over a folder that is there, for a look at it: opening and reading it makes, evicts and
// sweeps nothing, so that the right to read is enough.
Result<std::unique_ptr<EmbeddingStore>> OpenFileStoreToLook(const StoreConfig& config);

}  // namespace embercache
