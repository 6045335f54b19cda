#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "embercache/status.h"
#include "src/store/open_store.h"

namespace embercache {

// The flags that name a store.
struct StoreFlags {
  std::optional<std::string> backend;
  std::optional<std::string> config;
  std::optional<std::string> file_store_dir;

  bool any() const { return backend || config || file_store_dir; }
};

// Adds --mm-global-cache-backend, --mm-global-cache-config and --file-store-dir.
void AddStoreFlags(CLI::App& command, StoreFlags* flags);

// Whether --mm-global-cache-config has the options themselves, not the name of a file with them.
bool IsInlineConfig(const std::string& config);

// What they say. Invalid: a usage error.
Result<StoreChoice> StoreChoiceFrom(const StoreFlags& flags);

}  // namespace embercache
