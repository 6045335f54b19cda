#include "src/cli/settings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <map>
#include <string_view>

#include "src/base/log.h"
#include "src/cli/option_types.h"
#include "src/cli/settings_file.h"

namespace embercache {
namespace {

constexpr std::string_view kVariablePrefix = "EMBERCACHE_";
constexpr char kConfigOption[] = "--config";
// The redis store takes them.
constexpr std::array kStoreVariables = {"EMBERCACHE_REDIS_USERNAME", "EMBERCACHE_REDIS_PASSWORD"};

using Values = std::vector<std::string>;

std::vector<CLI::Option*> OptionsOf(const CLI::App& command) {
  std::vector<CLI::Option*> options;
  // The const overload gives const options only; filling them is what this file is for.
  for (CLI::Option* option : const_cast<CLI::App&>(command).get_options()) {
    if (!option->get_lnames().empty() && option->get_configurable() &&
        option != command.get_help_ptr()) {
      options.push_back(option);
    }
  }
  return options;
}

std::string NameOf(const CLI::Option& option) {
  std::string name = option.get_lnames().front();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string VariableOf(const CLI::Option& option) {
  std::string name = std::string(kVariablePrefix) + NameOf(option);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

Status Fill(CLI::Option& option, const Values& values, const std::string& where) {
  try {
    for (const std::string& value : values) option.add_result(value);
    option.run_callback();
  } catch (const CLI::Error& error) {
    std::string why = error.what();
    const std::string flag = option.get_name() + ": ";
    if (why.starts_with(flag)) why.erase(0, flag.size());
    return Status::Invalid(fmt::format("{}: {}", where, why));
  }
  return Status::Ok();
}

// "true" or "false"; empty for what says neither.
std::string Truth(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (text == "true" || text == "1" || text == "yes" || text == "on") return "true";
  if (text == "false" || text == "0" || text == "no" || text == "off") return "false";
  return {};
}

// Those given, else the default.
Values ValuesOf(const CLI::Option& option) {
  if (option.count() > 0) return option.results();
  if (KindOf(option) == OptionKind::kSwitch) return {"false"};
  if (option.get_default_str().empty()) return {};
  return {option.get_default_str()};
}

Status FillFromEnvironment(CLI::Option& option, std::string* origin) {
  const std::string variable = VariableOf(option);
  const char* const value = std::getenv(variable.c_str());
  if (value == nullptr || *value == '\0') return Status::Ok();
  *origin = "environment";
  if (KindOf(option) != OptionKind::kSwitch) return Fill(option, {value}, variable);
  const std::string truth = Truth(value);
  if (!truth.empty()) return Fill(option, {truth}, variable);
  return Status::Invalid(fmt::format("{}: {} is neither true nor false", variable, Quoted(value)));
}

Result<std::map<std::string, FileSetting>> ReadFile(const CLI::Option& config,
                                                    const std::vector<CLI::Option*>& options,
                                                    const std::set<std::string>& others) {
  if (config.count() == 0) return std::map<std::string, FileSetting>();
  std::map<std::string, OptionKind> kinds;
  for (const CLI::Option* option : options) kinds[NameOf(*option)] = KindOf(*option);
  return ReadSettingsFile(config.as<std::string>(), kinds, others);
}

}  // namespace

std::set<std::string> SettingNames(const CLI::App& command) {
  std::set<std::string> names;
  for (const CLI::Option* option : OptionsOf(command)) names.insert(NameOf(*option));
  return names;
}

Result<std::vector<Setting>> ResolveSettings(CLI::App& command,
                                             const std::set<std::string>& others) {
  const std::vector<CLI::Option*> options = OptionsOf(command);
  std::map<std::string, std::string> origins;
  for (CLI::Option* option : options) {
    std::string& origin = origins[NameOf(*option)];
    origin = option->count() > 0 ? "flag" : "default";
    if (option->count() == 0) EMBERCACHE_RETURN_IF_ERROR(FillFromEnvironment(*option, &origin));
  }
  EMBERCACHE_ASSIGN_OR_RETURN(const auto file,
                              ReadFile(*command.get_option(kConfigOption), options, others));
  std::vector<Setting> settings;
  for (CLI::Option* option : options) {
    const std::string name = NameOf(*option);
    const auto entry = file.find(name);
    if (entry != file.end() && option->count() == 0) {
      origins[name] = "file";
      EMBERCACHE_RETURN_IF_ERROR(Fill(*option, entry->second.values, entry->second.where));
    }
    settings.push_back({name, ValuesOf(*option), origins[name]});
  }
  return settings;
}

void WarnOfUnknownVariables(const CLI::App& command) {
  std::set<std::string> known(kStoreVariables.begin(), kStoreVariables.end());
  for (const CLI::Option* option : OptionsOf(command)) known.insert(VariableOf(*option));
  std::set<std::string> unknown;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    if (!text.starts_with(kVariablePrefix)) continue;
    std::string name(text.substr(0, text.find('=')));
    if (!known.contains(name)) unknown.insert(std::move(name));
  }
  for (const std::string& name : unknown) {
    LOG_WARNING("the variable {} is none that embercache serve knows", name);
  }
}

}  // namespace embercache
