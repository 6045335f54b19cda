#include "src/cli/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>

namespace embercache {
namespace {

constexpr std::string_view kPrefix = "EMBERCACHE_";

std::string VariableOf(const CLI::Option& option) {
  std::string name(kPrefix);
  for (const char c : option.get_lnames().front()) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

}  // namespace

void TakeFromEnvironment(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty() || option == command.get_help_ptr()) continue;
    option->envname(VariableOf(*option));
  }
}

std::vector<std::string> UnknownVariables(const CLI::App& command) {
  std::set<std::string> known;
  for (const CLI::Option* option : command.get_options()) known.insert(option->get_envname());
  std::vector<std::string> unknown;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    if (!text.starts_with(kPrefix)) continue;
    std::string name(text.substr(0, text.find('=')));
    if (!known.contains(name)) unknown.push_back(std::move(name));
  }
  std::sort(unknown.begin(), unknown.end());
  return unknown;
}

}  // namespace embercache
