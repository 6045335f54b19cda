#include "embercache/store_factory.h"
#include "src/store/file/file_store.h"
#include "src/store/memory/memory_store.h"
#include "src/store/mooncake/mooncake_store.h"
#include "src/store/plugin/plugin_store.h"
#include "src/store/redis/redis_store.h"

namespace embercache {

void RegisterBuiltinBackends(EmbeddingStoreFactory& factory) {
  factory.RegisterBackend("file", CreateFileStore);
  factory.RegisterBackend("memory", CreateMemoryStore);
  factory.RegisterBackend("mooncake", CreateMooncakeStore);
  factory.RegisterBackend("plugin", CreatePluginStore);
  factory.RegisterBackend("redis", CreateRedisStore);
}

}  // namespace embercache
