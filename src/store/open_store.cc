#include "src/store/open_store.h"

#include <thread>

#include "embercache/store_factory.h"

namespace embercache {
namespace {

constexpr Duration kPoll = std::chrono::milliseconds(20);

}  // namespace

Result<std::unique_ptr<EmbeddingStore>> OpenStore(const StoreChoice& choice) {
  EmbeddingStoreFactory factory;
  RegisterBuiltinBackends(factory);
  StoreConfig config;
  config.json = choice.config_json;
  return factory.CreateBackend(choice.backend, config);
}

bool WaitUntilUp(EmbeddingStore& store, TimePoint deadline) {
  while (store.Health().state != StoreState::kUp) {
    if (SteadyClock().Now() >= deadline) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

}  // namespace embercache
