#include "src/cli/settings_file.h"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <optional>
#include <sstream>

#include "src/cli/text_file.h"

namespace embercache {
namespace {

using Values = std::vector<std::string>;

std::string_view Expected(OptionKind kind) {
  switch (kind) {
    case OptionKind::kSwitch:
      return "it has to be true or false";
    case OptionKind::kNumber:
      return "it has to be a number, without quotes";
    case OptionKind::kTexts:
      return "it has to be a string, or an array of strings";
    case OptionKind::kObject:
      return "it has to be a table, or a string with a JSON object or the name of a file";
    case OptionKind::kText:
      break;
  }
  return "it has to be a string, in quotes";
}

// As TOML, where strings are quoted already; cut where it is long.
std::string TextOf(const toml::node& node) {
  constexpr size_t kMost = 60;
  std::ostringstream stream;
  node.visit([&](const auto& value) { stream << value; });
  const std::string text = stream.str();
  return text.size() <= kMost ? text : text.substr(0, kMost) + "…";
}

std::optional<Values> Texts(const toml::node& node) {
  if (const auto* text = node.as_string()) return Values{text->get()};
  const toml::array* const array = node.as_array();
  if (array == nullptr || array->empty()) return std::nullopt;
  Values values;
  for (const toml::node& element : *array) {
    const auto* const text = element.as_string();
    if (text == nullptr) return std::nullopt;
    values.push_back(text->get());
  }
  return values;
}

std::optional<Values> Number(const toml::node& node) {
  if (const auto* whole = node.as_integer()) return Values{std::to_string(whole->get())};
  if (const auto* part = node.as_floating_point()) return Values{fmt::format("{}", part->get())};
  return std::nullopt;
}

// A table becomes the text of a JSON object.
std::optional<Values> Object(const toml::node& node) {
  const toml::table* const table = node.as_table();
  if (table == nullptr) return node.is_string() ? Texts(node) : std::nullopt;
  std::ostringstream json;
  json << toml::json_formatter(*table);
  return Values{json.str()};
}

// Nothing for a value of another kind.
std::optional<Values> ValuesOf(const toml::node& node, OptionKind kind) {
  switch (kind) {
    case OptionKind::kSwitch:
      if (const auto* flag = node.as_boolean()) return Values{flag->get() ? "true" : "false"};
      return std::nullopt;
    case OptionKind::kNumber:
      return Number(node);
    case OptionKind::kTexts:
      return Texts(node);
    case OptionKind::kObject:
      return Object(node);
    case OptionKind::kText:
      break;
  }
  return node.is_string() ? Texts(node) : std::nullopt;
}

Result<toml::table> Parse(const std::string& path) {
  Result<std::string> text = ReadTextFile(path);
  if (!text.ok()) return Status::Invalid("--config " + text.status().message());
  try {
    return toml::parse(*text, path);
  } catch (const toml::parse_error& error) {
    return Status::Invalid(
        fmt::format("{} line {}: {}", path, error.source().begin.line, error.description()));
  }
}

}  // namespace

Result<std::map<std::string, FileSetting>> ReadSettingsFile(
    const std::string& path, const std::map<std::string, OptionKind>& kinds,
    const std::set<std::string>& others) {
  EMBERCACHE_ASSIGN_OR_RETURN(const toml::table table, Parse(path));
  std::map<std::string, FileSetting> settings;
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const std::string where =
        fmt::format("{} line {}: key '{}'", path, node.source().begin.line, name);
    if (name == "config") return Status::Invalid(where + ": a file cannot name another one");
    const auto kind = kinds.find(name);
    if (kind == kinds.end()) {
      if (others.contains(name)) continue;
      return Status::Invalid(where + " is unknown; keys are the flags' names, with '_'");
    }
    std::optional<Values> values = ValuesOf(node, kind->second);
    if (!values) {
      return Status::Invalid(
          fmt::format("{} is {}; {}", where, TextOf(node), Expected(kind->second)));
    }
    settings[name] = {*std::move(values), where};
  }
  return settings;
}

}  // namespace embercache
