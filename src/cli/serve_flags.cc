#include "src/cli/serve_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/memory/memory_limit.h"
#include "src/server/origin_check.h"

namespace embercache {
namespace {

// "NAME=DIR", or "DIR" whose name is the folder's.
ModelSource ParseModel(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || text.find('/') < equals) return {"", text};
  return {text.substr(0, equals), text.substr(equals + 1)};
}

Status FillStore(const ServeFlags& flags, EncodeServerOptions* options) {
  options->enable_global_cache = flags.enable_global_cache;
  if (!flags.enable_global_cache) {
    const char* const stray = flags.store.backend          ? "--mm-global-cache-backend"
                              : flags.store.config         ? "--mm-global-cache-config"
                              : flags.store.file_store_dir ? "--file-store-dir"
                                                           : nullptr;
    if (stray == nullptr) return Status::Ok();
    return Status::Invalid(fmt::format("{} needs --enable-mm-global-cache", stray));
  }
  EMBERCACHE_ASSIGN_OR_RETURN(options->store, StoreChoiceFrom(flags.store));
  return Status::Ok();
}

}  // namespace

void AddNodeFlags(CLI::App& command, ServeFlags* flags) {
  command.option_defaults()->always_capture_default();
  command
      .add_option("--config", flags->config_file, "TOML file with any of these, by name with '_'")
      ->type_name("FILE");
  command.add_option("--model", flags->models, "Model folder; repeat for several")
      ->type_name("[NAME=]DIR")
      ->allow_extra_args(false);
  command.add_flag("--enable-mm-global-cache", flags->enable_global_cache,
                   "Share embeddings with other nodes through a store");
  AddStoreFlags(command, &flags->store);
  command
      .add_option("--mm-global-cache-size-gb", flags->size_gb,
                  "Host cache in GB of 10^9 bytes; 0: none (the smaller of 4 and a quarter of "
                  "the memory)")
      ->type_name("N")
      ->check(CLI::Range(0.0, 1e6));
  command.add_option("--namespace", flags->tenant_salt,
                     "Keeps embeddings apart from those of other namespaces");
  command.add_option("--epoch", flags->epoch, "A new one makes all older embeddings unreachable");
  command.add_option("--lookup-timeout-ms", flags->lookup_timeout_ms,
                     "The longest that a request waits for the store");
  command.add_option("--max-pixels", flags->max_pixels, "Pixels of an image")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--max-batch-size", flags->max_batch_size,
                  "Items of one shape that go into one forward pass")
      ->check(CLI::PositiveNumber);
  command.add_option("--max-batch-wait-ms", flags->max_batch_wait_ms,
                     "How long a pass waits for more of them");
  command.add_option("--log-level", flags->log_level, "debug, info, warning or error");
  command.add_option("--log-format", flags->log_format, "text or json");
}

void AddServeFlags(CLI::App& command, ServeFlags* flags) {
  AddNodeFlags(command, flags);
  command.add_option("--host", flags->host, "Address to listen on");
  command.add_option("--port", flags->port, "Port to listen on; 0: any that is free");
  command
      .add_option("--request-timeout-ms", flags->request_timeout_ms,
                  "The longest that a request takes")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--queue-items", flags->queue_items,
                  "Items admitted and not answered; beyond, requests get 503")
      ->check(CLI::PositiveNumber);
  command.add_option("--max-items", flags->max_items, "Items of a request")
      ->check(CLI::PositiveNumber);
  command.add_option("--max-body-mb", flags->max_body_mb, "Body of a request, in 10^6 bytes")
      ->check(CLI::Range(1U, 4000U));
  command.add_option("--media-root", flags->media_root, "Folder that path items may name (none)")
      ->type_name("DIR");
  command.add_flag("--insecure", flags->insecure,
                   "Listen on an address that others reach, without access control");
}

Result<EncodeServerOptions> ServerOptionsFrom(const ServeFlags& flags) {
  if (flags.models.empty()) return Status::Invalid("--model is required");
  EncodeServerOptions options;
  for (const std::string& model : flags.models) options.models.push_back(ParseModel(model));
  if (!flags.insecure && !IsLoopbackHost(flags.host)) {
    return Status::Invalid(fmt::format(
        "--host '{}' can be reached by others, and there is no access control; say --insecure if "
        "that is meant",
        flags.host));
  }
  EMBERCACHE_RETURN_IF_ERROR(FillStore(flags, &options));
  options.host = flags.host;
  options.port = flags.port;
  options.pool_bytes = flags.size_gb ? static_cast<uint64_t>(std::llround(*flags.size_gb * 1e9))
                                     : DefaultPoolBytes();
  options.tenant_salt = flags.tenant_salt;
  options.epoch = flags.epoch;
  options.limits.lookup_timeout = std::chrono::milliseconds(flags.lookup_timeout_ms);
  options.limits.request_timeout = std::chrono::milliseconds(flags.request_timeout_ms);
  options.limits.queue_items = flags.queue_items;
  options.limits.max_items = flags.max_items;
  options.limits.max_body_bytes = uint64_t{flags.max_body_mb} * 1'000'000;
  options.max_pixels = flags.max_pixels;
  options.max_batch_items = flags.max_batch_size;
  options.max_batch_wait = std::chrono::milliseconds(flags.max_batch_wait_ms);
  options.media_root = flags.media_root;
  return options;
}

std::set<std::string> ServeSettingNames() {
  ServeFlags flags;
  CLI::App command;
  AddServeFlags(command, &flags);
  return SettingNames(command);
}

Result<ServeFlags> ReadServeFlags(std::vector<std::string> arguments) {
  ServeFlags flags;
  CLI::App command;
  AddServeFlags(command, &flags);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  try {
    command.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return Status::Invalid(error.what());
  }
  Result<std::vector<Setting>> settings = ResolveSettings(command);
  if (!settings.ok()) return settings.status();
  return flags;
}

}  // namespace embercache
