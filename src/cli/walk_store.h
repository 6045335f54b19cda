#pragma once

#include <functional>

#include "embercache/status.h"
#include "embercache/store.h"

namespace embercache {

// Calls `visit` with each object that the store lists. Ends at the first error, `visit`'s included.
Status WalkStore(EmbeddingStore& store, const std::function<Status(const ListedObject&)>& visit);

}  // namespace embercache
