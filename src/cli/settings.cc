#include "src/cli/settings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <string_view>

namespace embercache {
namespace {

constexpr std::string_view kVariablePrefix = "EMBERCACHE_";
constexpr char kConfigOption[] = "--config";

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
    return Status::Invalid(fmt::format("{}: {}", where, error.what()));
  }
  return Status::Ok();
}

Result<std::string> ScalarText(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* flag = node.as_boolean()) return std::string(flag->get() ? "true" : "false");
  return Status::Invalid("has to be a string, a number or a boolean");
}

// A table becomes the text of a JSON object, which is what options that take one want.
Result<Values> ValuesOf(const toml::node& node) {
  Values values;
  if (const toml::table* table = node.as_table()) {
    std::ostringstream json;
    json << toml::json_formatter(*table);
    values.push_back(json.str());
  } else if (const toml::array* array = node.as_array()) {
    for (const toml::node& element : *array) {
      EMBERCACHE_ASSIGN_OR_RETURN(std::string text, ScalarText(element));
      values.push_back(std::move(text));
    }
  } else {
    EMBERCACHE_ASSIGN_OR_RETURN(std::string text, ScalarText(node));
    values.push_back(std::move(text));
  }
  return values;
}

Result<std::map<std::string, Values>> ReadFile(const std::string& path) {
  std::map<std::string, Values> entries;
  try {
    const toml::table table = toml::parse_file(path);
    for (const auto& [key, node] : table) {
      const std::string name(key.str());
      Result<Values> values = ValuesOf(node);
      if (!values.ok()) {
        return Status::Invalid(
            fmt::format("{}: key '{}' {}", path, name, values.status().message()));
      }
      entries.emplace(name, *std::move(values));
    }
  } catch (const toml::parse_error& error) {
    return Status::Invalid(
        fmt::format("{} line {}: {}", path, error.source().begin.line, error.description()));
  }
  return entries;
}

Status FillFromEnvironment(CLI::Option& option, std::string* origin) {
  const std::string variable = VariableOf(option);
  const char* const value = std::getenv(variable.c_str());
  if (value == nullptr || *value == '\0') return Status::Ok();
  *origin = "environment";
  return Fill(option, {value}, variable);
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
  std::map<std::string, Values> file;
  const CLI::Option* const config = command.get_option(kConfigOption);
  if (config->count() > 0) {
    EMBERCACHE_ASSIGN_OR_RETURN(file, ReadFile(config->as<std::string>()));
  }
  std::vector<Setting> settings;
  for (CLI::Option* option : options) {
    const std::string name = NameOf(*option);
    const auto entry = file.extract(name);
    if (!entry.empty() && option->count() == 0) {
      origins[name] = "file";
      EMBERCACHE_RETURN_IF_ERROR(
          Fill(*option, entry.mapped(), fmt::format("{}: key '{}'", config->results()[0], name)));
    }
    const Values values =
        option->count() > 0 ? option->results() : Values{option->get_default_str()};
    settings.push_back({name, values, origins[name]});
  }
  std::erase_if(file, [&](const auto& entry) { return others.contains(entry.first); });
  if (!file.empty()) {
    return Status::Invalid(fmt::format("{}: unknown key '{}'; keys are the flags' names, with '_'",
                                       config->results()[0], file.begin()->first));
  }
  return settings;
}

std::vector<std::string> UnknownVariables(const CLI::App& command) {
  std::set<std::string> known;
  for (const CLI::Option* option : OptionsOf(command)) known.insert(VariableOf(*option));
  std::vector<std::string> unknown;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    if (!text.starts_with(kVariablePrefix)) continue;
    std::string name(text.substr(0, text.find('=')));
    if (!known.contains(name)) unknown.push_back(std::move(name));
  }
  std::sort(unknown.begin(), unknown.end());
  return unknown;
}

}  // namespace embercache
