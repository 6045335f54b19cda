#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "src/cli/commands.h"
#include "src/cli/report.h"
#include "src/cli/serve_flags.h"
#include "src/store/redacted_options.h"

namespace embercache {
namespace {

std::string Joined(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : ", ") + value;
  return text;
}

// What is in force where nobody set it, and passwords hidden.
void Complete(const EncodeServerOptions& options, Setting* setting) {
  std::vector<std::string>& values = setting->values;
  if (setting->name == "mm_global_cache_config" && !values.empty() && IsInlineConfig(values[0])) {
    values[0] = RedactedOptions(values[0]);
  }
  if (!values.empty() && values.front().empty()) values.clear();
  if (!values.empty()) return;
  if (setting->name == "mm_global_cache_size_gb") {
    values = {fmt::format("{}", static_cast<double>(options.pool_bytes) / 1e9)};
  } else if (setting->name == "mm_global_cache_backend" && options.enable_global_cache) {
    values = {options.store.backend};
  }
}

void PrintSettings(const std::vector<Setting>& settings) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const Setting& setting : settings) {
    nlohmann::ordered_json value;  // null: none
    if (!setting.values.empty()) value = Joined(setting.values);
    json[setting.name] = {{"value", value}, {"origin", setting.origin}};
  }
  PrintJson(json);
}

int PrintConfig(const ServeFlags& flags, CLI::App& command, bool json) {
  auto settings = ResolveSettings(command);
  if (!settings.ok()) return Fail(settings.status(), kExitUsage);
  const auto options = ServerOptionsFrom(flags);
  if (!options.ok()) return Fail(options.status(), kExitUsage);
  WarnOfUnknownVariables(command);
  for (Setting& setting : *settings) Complete(*options, &setting);
  if (json) {
    PrintSettings(*settings);
    return kExitFine;
  }
  for (const Setting& setting : *settings) {
    fmt::print("{:<26} {:<12} {}\n", setting.name, setting.origin,
               setting.values.empty() ? "none" : Joined(setting.values));
  }
  return kExitFine;
}

}  // namespace

void AddConfigCommand(CLI::App& app, int* exit_code) {
  CLI::App* const command = app.add_subcommand(
      "config", "Print what `serve` would take from flags, environment and file");
  const auto flags = std::make_shared<ServeFlags>();
  AddServeFlags(*command, flags.get());
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "As a JSON object")->configurable(false);
  SetExamples(*command, {"embercache config --model MODEL --port 9000",
                         "EMBERCACHE_MODEL=MODEL embercache config --json"});
  command->callback(
      [command, flags, json, exit_code] { *exit_code = PrintConfig(*flags, *command, *json); });
}

}  // namespace embercache
