#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "embercache/status.h"
#include "src/cli/settings.h"
#include "src/cli/store_flags.h"
#include "src/server/encode_server.h"

namespace embercache {

// What `embercache serve` can be told; docs/operations.md describes each flag.
struct ServeFlags {
  std::string config_file;
  std::vector<std::string> models;
  bool enable_global_cache = false;
  StoreFlags store;
  std::optional<double> size_gb;
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  std::string tenant_salt;
  uint64_t epoch = 0;
  uint32_t lookup_timeout_ms = 500;
  uint32_t request_timeout_ms = 30000;
  uint32_t queue_items = 96;
  uint32_t max_items = 64;
  uint32_t max_body_mb = 64;
  uint64_t max_pixels = 178'000'000;
  uint32_t max_batch_size = 1;
  uint32_t max_batch_wait_ms = 0;
  std::string media_root;
  std::string log_level = "info";
  std::string log_format = "text";
  bool insecure = false;
};

// Adds those of the flags that do not concern the network and its requests: what `encode` takes
// too. What they say goes to `*flags`, which outlives `command`; its defaults are what it has now.
void AddNodeFlags(CLI::App& command, ServeFlags* flags);

// Adds all flags.
void AddServeFlags(CLI::App& command, ServeFlags* flags);

// Names of all settings that `serve` takes, as the TOML file has them.
std::set<std::string> ServeSettingNames();

// The flags as the server wants them. Invalid: a usage error.
Result<EncodeServerOptions> ServerOptionsFrom(const ServeFlags& flags);

// The flags of `arguments`, with the environment and the file, as they are now.
Result<ServeFlags> ReadServeFlags(std::vector<std::string> arguments);

}  // namespace embercache
