#pragma once

#include <memory>
#include <string>

#include "embercache/clock.h"
#include "embercache/status.h"
#include "embercache/store.h"

namespace embercache {

// A store, as flags name it.
struct StoreChoice {
  std::string backend = "file";
  std::string config_json = "{}";
};

// A store of one of this build's backends. Invalid for one in raw format: servers and commands name
// media by their bytes.
Result<std::unique_ptr<EmbeddingStore>> OpenStore(const StoreChoice& choice);

// The same for a look at what is in it. Of the backend file the folder has to be there, and the
// right to read it is enough: nothing in it is made or cleaned up.
Result<std::unique_ptr<EmbeddingStore>> OpenStoreToLook(const StoreChoice& choice);

// Waits for a store that starts in the background. False when it is not up by `deadline`.
bool WaitUntilUp(EmbeddingStore& store, TimePoint deadline);

}  // namespace embercache
