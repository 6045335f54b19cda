#include "embercache/store_factory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <exception>
#include <utility>

#include "src/base/log.h"

namespace embercache {

void EmbeddingStoreFactory::RegisterBackend(std::string name, StoreCreator creator) {
  std::lock_guard lock(mutex_);
  const auto [entry, is_new] = creators_.insert_or_assign(std::move(name), std::move(creator));
  if (!is_new) LOG_WARNING("store backend '{}' is registered again and replaced", entry->first);
}

Result<std::unique_ptr<EmbeddingStore>> EmbeddingStoreFactory::CreateBackend(
    std::string_view name, const StoreConfig& config) const {
  StoreCreator creator;
  {
    std::lock_guard lock(mutex_);
    if (const auto entry = creators_.find(name); entry != creators_.end()) creator = entry->second;
  }
  if (!creator) {
    return Status::Invalid(fmt::format("store backend '{}' is unknown; there are: {}", name,
                                       fmt::join(BackendNames(), ", ")));
  }
  try {
    return creator(config);
  } catch (const std::exception& error) {
    return Status::Internal(fmt::format("store backend '{}' threw: {}", name, error.what()));
  } catch (...) {
    return Status::Internal(fmt::format("store backend '{}' threw something unknown", name));
  }
}

std::vector<std::string> EmbeddingStoreFactory::BackendNames() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, creator] : creators_) names.push_back(name);
  return names;
}

}  // namespace embercache
