#include "src/store/open_store.h"

#include <fmt/format.h>

#include <thread>

#include "embercache/store_factory.h"
#include "src/store/file/file_store.h"
#include "src/store/raw_format.h"

namespace embercache {
namespace {

constexpr Duration kPoll = std::chrono::milliseconds(20);

}  // namespace

Result<std::unique_ptr<EmbeddingStore>> OpenStore(const StoreChoice& choice) {
  EmbeddingStoreFactory factory;
  RegisterBuiltinBackends(factory);
  StoreConfig config;
  config.json = choice.config_json;
  EMBERCACHE_ASSIGN_OR_RETURN(auto store, factory.CreateBackend(choice.backend, config));
  if (!IsRaw(*store)) return store;
  return Status::Invalid(fmt::format(
      "{}: format is 'raw', which is for callers that give hashes and exact token counts "
      "(embercache.sglang); it has to be 'envelope' here",
      choice.backend));
}

Result<std::unique_ptr<EmbeddingStore>> OpenStoreToLook(const StoreChoice& choice) {
  if (choice.backend != "file") return OpenStore(choice);
  StoreConfig config;
  config.json = choice.config_json;
  return OpenFileStoreToLook(config);
}

bool WaitUntilUp(EmbeddingStore& store, TimePoint deadline) {
  while (store.Health().state != StoreState::kUp) {
    if (SteadyClock().Now() >= deadline) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

}  // namespace embercache
