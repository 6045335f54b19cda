#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <semaphore>
#include <sstream>
#include <thread>

#include "src/base/log.h"
#include "src/cli/commands.h"
#include "src/cli/environment.h"
#include "src/cli/exit_code.h"
#include "src/cli/progress_line.h"
#include "src/memory/memory_limit.h"
#include "src/server/encode_server.h"
#include "src/server/origin_check.h"
#include "src/server/version.h"

namespace embercache {
namespace {

// Requests that run, and publications, get so long after SIGTERM.
constexpr Duration kGraceTime = std::chrono::seconds(30);

// The flags, as they come from the command line and the environment.
struct ServeFlags {
  std::vector<std::string> models;
  bool enable_global_cache = false;
  std::optional<std::string> backend;
  std::optional<std::string> config;
  std::optional<std::string> file_store_dir;
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
  std::string media_root;
  std::string log_level = "info";
  bool insecure = false;
};

void AddFlags(CLI::App& command, ServeFlags* flags) {
  command.option_defaults()->always_capture_default();
  command.add_option("--model", flags->models, "Model folder; repeat for several")
      ->type_name("[NAME=]DIR")
      ->required();
  command.add_flag("--enable-mm-global-cache", flags->enable_global_cache,
                   "Share embeddings with other nodes through a store");
  command.add_option("--mm-global-cache-backend", flags->backend, "Kind of store (file)")
      ->type_name("NAME");
  command
      .add_option("--mm-global-cache-size-gb", flags->size_gb,
                  "Host cache in GB of 10^9 bytes; 0: none (the smaller of 4 and a quarter of "
                  "the memory)")
      ->type_name("N")
      ->check(CLI::Range(0.0, 1e6));
  command
      .add_option("--mm-global-cache-config", flags->config,
                  "Options of the store: a JSON object, or a file with one")
      ->type_name("JSON|FILE");
  command
      .add_option("--file-store-dir", flags->file_store_dir,
                  "Folder of the file store; short for --mm-global-cache-config '{\"dir\":…}'")
      ->type_name("DIR");
  command.add_option("--host", flags->host, "Address to listen on");
  command.add_option("--port", flags->port, "Port to listen on; 0: any that is free");
  command.add_option("--namespace", flags->tenant_salt,
                     "Keeps embeddings apart from those of other namespaces");
  command.add_option("--epoch", flags->epoch, "A new one makes all older embeddings unreachable");
  command.add_option("--lookup-timeout-ms", flags->lookup_timeout_ms,
                     "The longest that a request waits for the store");
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
  command.add_option("--max-pixels", flags->max_pixels, "Pixels of an image")
      ->check(CLI::PositiveNumber);
  command.add_option("--media-root", flags->media_root, "Folder that path items may name (none)")
      ->type_name("DIR");
  command.add_option("--log-level", flags->log_level, "debug, info, warning or error");
  command.add_flag("--insecure", flags->insecure,
                   "Listen on an address that others reach, without access control");
  TakeFromEnvironment(command);
}

// "NAME=DIR", or "DIR" whose name is the folder's.
ModelSource ParseModel(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || text.find('/') < equals) return {"", text};
  return {text.substr(0, equals), text.substr(equals + 1)};
}

Result<std::string> ReadConfig(const std::string& text) {
  if (text.starts_with('{')) return text;
  std::ifstream file(text);
  std::ostringstream content;
  content << file.rdbuf();
  if (file) return content.str();
  return Status::Invalid(fmt::format(
      "--mm-global-cache-config '{}' is neither a JSON object nor a file that can be read", text));
}

Status FillStore(const ServeFlags& flags, EncodeServerOptions* options) {
  options->enable_global_cache = flags.enable_global_cache;
  if (!flags.enable_global_cache) {
    const char* const stray = flags.backend          ? "--mm-global-cache-backend"
                              : flags.config         ? "--mm-global-cache-config"
                              : flags.file_store_dir ? "--file-store-dir"
                                                     : nullptr;
    if (stray == nullptr) return Status::Ok();
    return Status::Invalid(fmt::format("{} needs --enable-mm-global-cache", stray));
  }
  if (flags.backend) options->backend = *flags.backend;
  if (flags.file_store_dir && flags.config) {
    return Status::Invalid("--file-store-dir and --mm-global-cache-config exclude each other");
  }
  if (flags.file_store_dir) {
    if (options->backend != "file") {
      return Status::Invalid(
          fmt::format("--file-store-dir is for the backend file, not {}", options->backend));
    }
    options->store_config_json = nlohmann::json{{"dir", *flags.file_store_dir}}.dump();
  } else if (flags.config) {
    EMBERCACHE_ASSIGN_OR_RETURN(options->store_config_json, ReadConfig(*flags.config));
  }
  return Status::Ok();
}

// Invalid: a usage error.
Result<EncodeServerOptions> OptionsFrom(const ServeFlags& flags) {
  EMBERCACHE_RETURN_IF_ERROR(SetLogLevel(flags.log_level));
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
  options.lookup_timeout = std::chrono::milliseconds(flags.lookup_timeout_ms);
  options.request_timeout = std::chrono::milliseconds(flags.request_timeout_ms);
  options.queue_items = flags.queue_items;
  options.max_items = flags.max_items;
  options.max_body_bytes = uint64_t{flags.max_body_mb} * 1'000'000;
  options.max_pixels = flags.max_pixels;
  options.media_root = flags.media_root;
  return options;
}

// SIGTERM and SIGINT, taken by a thread of its own: the first one asks the server to stop, a second
// one ends the process at once. While the server loads there is nothing to finish.
class StopSignal {
 public:
  StopSignal() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    std::thread([this, signals] {
      int signal = 0;
      sigwait(&signals, &signal);
      if (!loaded_) _exit(kExitFine);
      stop_.release();
      sigwait(&signals, &signal);
      _exit(kExitFailed);
    }).detach();
  }

  void SetLoaded() { loaded_ = true; }
  void Wait() { stop_.acquire(); }

 private:
  std::atomic<bool> loaded_{false};
  std::binary_semaphore stop_{0};
};

void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

std::string UrlHost(const std::string& host) {
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

void PrintExample(const std::string& url) {
  const std::string demo = ".deps/media/china.jpg";
  const std::string image = std::filesystem::exists(demo) ? demo : "IMAGE.jpg";
  fmt::print(
      "Ready. Try:\n"
      "  (printf '{{\"items\":[{{\"type\":\"image\",\"data\":\"'; base64 -w0 {}; printf '\"}}]}}') "
      "|\n"
      "    curl -sS -H 'Accept: application/json' --data-binary @- {}/v1/encode\n",
      image, url);
  std::fflush(stdout);
}

int Fail(const Status& status, int exit_code) {
  fmt::print(stderr, "embercache: {}\n", status.message());
  return exit_code;
}

int Serve(const ServeFlags& flags, const CLI::App& command) {
  Result<EncodeServerOptions> options = OptionsFrom(flags);
  if (!options.ok()) return Fail(options.status(), kExitUsage);
  for (const std::string& name : UnknownVariables(command)) {
    LOG_WARNING("the variable {} is none that embercache serve knows", name);
  }
  // Never destroyed: its thread waits for signals until the end.
  auto* const stop = new StopSignal();
  signal(SIGPIPE, SIG_IGN);
  RaiseDescriptorLimit();

  ProgressLine progress;
  options->progress = [&progress](std::string_view stage, uint64_t done, uint64_t total) {
    progress.Show(stage, done, total);
  };
  auto server = EncodeServer::Listen(*std::move(options));
  if (!server.ok()) return Fail(server.status(), kExitFailed);
  const std::string url = fmt::format("http://{}:{}", UrlHost(flags.host), (*server)->port());
  fmt::print("EmberCache {} listens on {}\n", Version(), url);
  std::fflush(stdout);
  LOG_INFO("listening on {}", url);
  const Status loaded = (*server)->Load();
  progress.Clear();
  if (!loaded.ok()) {
    (void)(*server)->Stop(SteadyClock().Now());
    return Fail(loaded, kExitFailed);
  }
  LOG_INFO("ready");
  PrintExample(url);

  stop->SetLoaded();
  stop->Wait();
  LOG_INFO("stopping: finishing what runs");
  const Status stopped = (*server)->Stop(SteadyClock().Now() + kGraceTime);
  if (stopped.ok()) {
    LOG_INFO("stopped");
    return kExitFine;
  }
  LOG_WARNING("stopped, but not all was finished: {}", stopped.message());
  _exit(kExitFine);  // threads that were left behind still use what destructors would take
}

}  // namespace

void AddServeCommand(CLI::App& app, int* exit_code) {
  CLI::App* const command = app.add_subcommand("serve", "Serve embeddings over HTTP");
  const auto flags = std::make_shared<ServeFlags>();
  AddFlags(*command, flags.get());
  command->callback([command, flags, exit_code] { *exit_code = Serve(*flags, *command); });
}

}  // namespace embercache
