#pragma once

#include "embercache/status.h"
#include "tests/conformance/store_conformance.h"

namespace embercache {

// What a backend offers of that which it may leave out (versions, listing, telling stored from
// already present, sharing), found by using it: two stores, and one small object that is removed
// again. Fails when that much does not work.
Result<StoreTraits> ProbeTraits(
    const std::function<Result<std::unique_ptr<EmbeddingStore>>()>& open);

}  // namespace embercache
