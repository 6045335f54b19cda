#pragma once

#include <string>

#include "embercache/status.h"
#include "embercache/store_plugin.h"

namespace embercache {

// Loads the shared object at `path` (as dlopen takes it) and checks what it offers: Invalid, naming
// the path and what is wrong, unless it is a store plugin of this ABI version with all the
// functions it must have. Optional functions that it does not know of are null in the copy
// returned. Plugins are never unloaded: their threads may outlive a store.
Result<embercache_store_plugin_table> LoadStorePlugin(const std::string& path);

}  // namespace embercache
