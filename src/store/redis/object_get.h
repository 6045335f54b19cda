#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "src/store/redis/stored_value.h"

namespace embercache::redis {

// Gets the items whose indexes are in `open`, whose keys are valid; sets their results. An object
// that has not all its chunks is a miss, and what is left of it is removed.
void GetObjects(const Session& session, std::span<const GetItem> items, std::vector<size_t> open,
                std::vector<GetResult>& results);

}  // namespace embercache::redis
