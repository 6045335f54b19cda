#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "src/cli/commands.h"
#include "src/cli/report.h"
#include "src/cli/serve_flags.h"

namespace embercache {
namespace {

std::string Joined(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : ", ") + value;
  return text;
}

void PrintSettings(const std::vector<Setting>& settings) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const Setting& setting : settings) {
    json[setting.name] = {{"value", Joined(setting.values)}, {"origin", setting.origin}};
  }
  PrintJson(json);
}

int PrintConfig(const ServeFlags& flags, CLI::App& command, bool json) {
  const auto settings = ResolveSettings(command);
  const Status status = settings.ok() ? ServerOptionsFrom(flags).status() : settings.status();
  if (!status.ok()) return Fail(status, kExitUsage);
  if (json) {
    PrintSettings(*settings);
    return kExitFine;
  }
  for (const Setting& setting : *settings) {
    fmt::print("{:<26} {:<12} {}\n", setting.name, setting.origin, Joined(setting.values));
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
