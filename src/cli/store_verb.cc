#include "src/cli/store_verb.h"

#include <fmt/format.h>

#include <filesystem>

#include "embercache/digest.h"
#include "embercache/key.h"
#include "src/base/log.h"
#include "src/cli/report.h"
#include "src/cli/serve_flags.h"

namespace embercache {
namespace {

// How long a remote store has to answer for the first time.
constexpr Duration kStartTime = std::chrono::seconds(5);
constexpr Duration kCallTime = std::chrono::seconds(60);

// A file store makes its folder, which is no help to one who looks into a store and has mistyped
// its name.
Status CheckIsThere(const StoreChoice& choice) {
  if (choice.backend != "file") return Status::Ok();
  const auto config = nlohmann::json::parse(choice.config_json, nullptr, false);
  if (!config.is_object() || !config.contains("dir") || !config["dir"].is_string()) {
    return Status::Ok();  // opening it says what is wrong
  }
  std::error_code error;
  const auto dir = config["dir"].get<std::string>();
  if (dir.empty() || std::filesystem::exists(dir, error)) return Status::Ok();
  return Status::NotFound(fmt::format("there is no store folder '{}'", dir));
}

using Opened = Result<std::unique_ptr<EmbeddingStore>>;

// `opened`, once it is up.
Opened UpOrError(const StoreChoice& choice, Opened opened) {
  if (!opened.ok() || WaitUntilUp(**opened, SteadyClock().Now() + kStartTime)) return opened;
  return Status::Unavailable(
      fmt::format("the store {} is not up: {}", choice.backend, (*opened)->Health().detail));
}

}  // namespace

void AddStoreSourceFlags(CLI::App& command, StoreVerb* verb) {
  command
      .add_option("--config", verb->config_file, "TOML file, as of serve; its store is meant here")
      ->type_name("FILE");
  AddStoreFlags(command, &verb->store);
}

void AddStoreVerbFlags(CLI::App& command, StoreVerb* verb) {
  AddStoreSourceFlags(command, verb);
  command.add_flag("--json", verb->json, "Print JSON")->configurable(false);
}

Result<StoreChoice> ChooseStore(CLI::App& command, const StoreVerb& verb) {
  EMBERCACHE_RETURN_IF_ERROR(SetLogLevel("error"));
  const auto settings = ResolveSettings(command, ServeSettingNames());
  if (!settings.ok()) return settings.status();
  return StoreChoiceFrom(verb.store);
}

Result<std::unique_ptr<EmbeddingStore>> OpenUp(const StoreChoice& choice) {
  return UpOrError(choice, OpenStore(choice));
}

int OpenExitCode(const Status& status) {
  return status.code() == StatusCode::kInvalid ? kExitUsage : kExitFailed;
}

int WithStore(CLI::App& command, const StoreVerb& verb,
              const std::function<int(EmbeddingStore&)>& run) {
  const auto choice = ChooseStore(command, verb);
  if (!choice.ok()) return Fail(choice.status(), kExitUsage);
  const Status there = CheckIsThere(*choice);
  if (!there.ok()) return Fail(there, ExitCodeOf(there));
  const auto store = UpOrError(*choice, OpenStoreToLook(*choice));
  if (!store.ok()) return Fail(store.status(), OpenExitCode(store.status()));
  const int exit_code = run(**store);
  (void)(*store)->Close(SteadyClock().Now() + kCallTime);
  return exit_code;
}

CallContext CallLimits() {
  CallContext limits;
  limits.deadline = SteadyClock().Now() + kCallTime;
  return limits;
}

std::string KeyText(const std::string& word) {
  const auto digest = Digest256::FromHex(word);
  return digest ? EmbeddingKey{*digest}.Text() : word;
}

}  // namespace embercache
