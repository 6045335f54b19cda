#pragma once

#include <memory>

#include "embercache/status.h"
#include "embercache/store.h"
#include "embercache/store_factory.h"

namespace embercache {

// A backend in a shared object (include/embercache/store_plugin.h). Options:
//   path    the shared object. Required.
//   config  an object that is handed to the plugin ({}).
Result<std::unique_ptr<EmbeddingStore>> CreatePluginStore(const StoreConfig& config);

}  // namespace embercache
