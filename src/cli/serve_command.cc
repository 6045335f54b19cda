#include <fmt/format.h>
#include <sys/resource.h>

#include <filesystem>

#include "src/base/log.h"
#include "src/cli/commands.h"
#include "src/cli/progress_line.h"
#include "src/cli/report.h"
#include "src/cli/serve_flags.h"
#include "src/cli/signal_thread.h"
#include "src/cli/store_verb.h"
#include "src/server/version.h"

namespace embercache {
namespace {

// Requests that run, and publications, get so long after SIGTERM: what supervisors give by default,
// 30 s, less what cutting the rest may take.
constexpr Duration kGraceTime = std::chrono::seconds(28);

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
  fmt::print("Ready. Try:\n  curl -sS -H 'Accept: application/json' -F image=@{} {}/v1/encode\n",
             image, url);
  std::fflush(stdout);
}

// Both or neither.
Status SetLog(const ServeFlags& flags) {
  const std::string level = LogLevel();
  EMBERCACHE_RETURN_IF_ERROR(SetLogLevel(flags.log_level));
  Status format = SetLogFormat(flags.log_format);
  if (!format.ok()) (void)SetLogLevel(level);
  return format;
}

// SIGHUP: what can be changed while the server runs is read again.
void Reload(const std::vector<std::string>& arguments, EncodeServer& server) {
  const auto apply = [&]() -> Status {
    EMBERCACHE_ASSIGN_OR_RETURN(const ServeFlags flags, ReadServeFlags(arguments));
    EMBERCACHE_ASSIGN_OR_RETURN(const EncodeServerOptions options, ServerOptionsFrom(flags));
    EMBERCACHE_RETURN_IF_ERROR(SetLog(flags));
    server.SetLimits(options.limits);
    return Status::Ok();
  };
  const Status status = apply();
  if (status.ok()) {
    LOG_INFO("reloaded log level, log format and limits");
  } else {
    LOG_ERROR("nothing was reloaded: {}", status.message());
  }
}

int Serve(const ServeFlags& flags, CLI::App& command, const std::vector<std::string>& arguments) {
  const auto settings = ResolveSettings(command);
  if (!settings.ok()) return Fail(settings.status(), kExitUsage);
  Result<EncodeServerOptions> options = ServerOptionsFrom(flags);
  if (!options.ok()) return Fail(options.status(), kExitUsage);
  const Status log = SetLog(flags);
  if (!log.ok()) return Fail(log, kExitUsage);
  WarnOfUnknownVariables(command);
  RaiseDescriptorLimit();
  // Never destroyed: its thread waits for signals until the end.
  auto* const signals = new SignalThread();

  ProgressLine progress;
  options->progress = [&progress](std::string_view stage, uint64_t done, uint64_t total) {
    progress.Show(stage, done, total);
  };
  const auto server = EncodeServer::Listen(*std::move(options));
  if (!server.ok()) return Fail(server.status(), OpenExitCode(server.status()));
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

  signals->WaitForStop([&] { Reload(arguments, **server); });
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

void AddServeCommand(CLI::App& app, const std::vector<std::string>& arguments, int* exit_code) {
  CLI::App* const command = app.add_subcommand("serve", "Serve embeddings over HTTP");
  const auto flags = std::make_shared<ServeFlags>();
  AddServeFlags(*command, flags.get());
  SetExamples(*command, {"embercache serve --model MODEL",
                         "embercache serve --model MODEL --enable-mm-global-cache "
                         "--file-store-dir store"});
  command->callback(
      [command, flags, arguments, exit_code] { *exit_code = Serve(*flags, *command, arguments); });
}

}  // namespace embercache
