#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "embercache/clock.h"
#include "embercache/status.h"
#include "embercache/store.h"

namespace embercache {

// What a backend is made from.
struct StoreConfig {
  // A JSON object in text, as in --mm-global-cache-config: {"dir":"/var/cache/embercache"}.
  std::string json = "{}";
  const Clock* clock = &SteadyClock();
};

// Makes a store. Fails on a wrong configuration and on local resources that cannot be had; a remote
// peer that does not answer is no failure (the store starts in StoreState::kStarting or kDown).
using StoreCreator = std::function<Result<std::unique_ptr<EmbeddingStore>>(const StoreConfig&)>;

// Backends by name. Thread-safe.
class EmbeddingStoreFactory {
 public:
  // A name registered again is replaced, with a warning in the log.
  void RegisterBackend(std::string name, StoreCreator creator);

  // Invalid for an unknown name (lists those there are), for an unknown or malformed option (lists
  // the known ones). A creator that throws is Internal and names the backend.
  Result<std::unique_ptr<EmbeddingStore>> CreateBackend(std::string_view name,
                                                        const StoreConfig& config) const;

  // Sorted.
  std::vector<std::string> BackendNames() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, StoreCreator, std::less<>> creators_;
};

// Registers what this build has: file, memory, and the others of docs/design/stores.md.
void RegisterBuiltinBackends(EmbeddingStoreFactory& factory);

}  // namespace embercache
