#include "src/cli/serve_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/cli/option_types.h"
#include "src/encode/folder_name.h"
#include "src/memory/memory_limit.h"
#include "src/server/http_server.h"
#include "src/server/origin_check.h"

namespace embercache {
namespace {

// More than any of them makes sense for: who says more has missed a unit or a key.
constexpr double kMaxSizeGb = 1e5;
constexpr uint64_t kMaxTimeoutMs = 86'400'000;
constexpr uint64_t kMaxItems = 100'000;
constexpr uint64_t kMaxBodyMb = 4000;
constexpr uint64_t kMaxPixels = 4'000'000'000;

// "NAME=DIR", or "DIR".
Result<ModelSource> ParseModel(const std::string& text) {
  const size_t equals = text.find('=');
  const bool is_named = equals != std::string::npos && equals < text.find('/');
  const ModelSource source = is_named ? ModelSource{text.substr(0, equals), text.substr(equals + 1)}
                                      : ModelSource{"", text};
  if (source.dir.empty() || (is_named && source.name.empty())) {
    return Status::Invalid(fmt::format("--model {} has to be DIR or NAME=DIR", Quoted(text)));
  }
  return source;
}

Result<std::vector<ModelSource>> ParseModels(const std::vector<std::string>& texts) {
  if (texts.empty()) return Status::Invalid("--model is required");
  std::vector<ModelSource> models;
  std::set<std::string> names;
  for (const std::string& text : texts) {
    EMBERCACHE_ASSIGN_OR_RETURN(ModelSource model, ParseModel(text));
    const std::string name = model.name.empty() ? FolderName(model.dir) : model.name;
    if (!names.insert(name).second) {
      return Status::Invalid(fmt::format("two models are named '{}'; use --model NAME=DIR", name));
    }
    models.push_back(std::move(model));
  }
  return models;
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
      ->allow_extra_args(false)
      ->default_str("");
  command.add_flag("--enable-mm-global-cache", flags->enable_global_cache,
                   "Share embeddings with other nodes through a store");
  AddStoreFlags(command, &flags->store);
  command
      .add_option("--mm-global-cache-size-gb", flags->size_gb,
                  "Host cache in GB of 10^9 bytes; 0: none (the smaller of 4 and a quarter of "
                  "the memory)")
      ->type_name(kNumberType)
      ->check(DecimalNumber(0, kMaxSizeGb));
  command.add_option("--namespace", flags->tenant_salt,
                     "Keeps embeddings apart from those of other namespaces");
  AddNumber(command, "--epoch", flags->epoch, "A new one makes all older embeddings unreachable", 0,
            UINT64_MAX);
  AddNumber(command, "--lookup-timeout-ms", flags->lookup_timeout_ms,
            "The longest that a request waits for the store", 0, kMaxTimeoutMs);
  AddNumber(command, "--max-pixels", flags->max_pixels, "Pixels of an image", 1, kMaxPixels);
  AddNumber(command, "--max-batch-size", flags->max_batch_size,
            "Items of one shape that go into one forward pass", 1, kMaxItems);
  AddNumber(command, "--max-batch-wait-ms", flags->max_batch_wait_ms,
            "How long a pass waits for more of them", 0, kMaxTimeoutMs);
  command.add_option("--log-level", flags->log_level, "debug, info, warning or error");
  command.add_option("--log-format", flags->log_format, "text or json");
}

void AddServeFlags(CLI::App& command, ServeFlags* flags) {
  AddNodeFlags(command, flags);
  command.add_option("--host", flags->host, "Address to listen on");
  AddNumber(command, "--port", flags->port, "Port to listen on; 0: any that is free", 0,
            UINT16_MAX);
  AddNumber(command, "--request-timeout-ms", flags->request_timeout_ms,
            "The longest that a request takes", 1, kMaxTimeoutMs);
  AddNumber(command, "--queue-items", flags->queue_items,
            "Items admitted and not answered; beyond, requests get 503", 1, kMaxItems);
  AddNumber(command, "--max-items", flags->max_items, "Items of a request", 1, kMaxItems);
  AddNumber(command, "--max-body-mb", flags->max_body_mb, "Body of a request, in 10^6 bytes", 1,
            kMaxBodyMb);
  command.add_option("--media-root", flags->media_root, "Folder that path items may name (none)")
      ->type_name("DIR");
  command.add_flag("--insecure", flags->insecure,
                   "Listen on an address that others reach, without access control");
}

Result<EncodeServerOptions> ServerOptionsFrom(const ServeFlags& flags) {
  EncodeServerOptions options;
  EMBERCACHE_ASSIGN_OR_RETURN(options.models, ParseModels(flags.models));
  if (!IsListenAddress(flags.host)) {
    return Status::Invalid(
        fmt::format("--host {} has to be localhost or an IP address, such as 127.0.0.1 or ::1",
                    Quoted(flags.host)));
  }
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
