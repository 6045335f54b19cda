#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "src/store/redis/stored_value.h"

namespace embercache::redis {

// Puts the items whose indexes are in `open`, whose keys are valid and each another; sets their
// results.
void PutObjects(const Session& session, std::span<const PutItem> items,
                std::span<const size_t> open, std::vector<PutResult>& results);

}  // namespace embercache::redis
