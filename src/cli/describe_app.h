#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "embercache/status.h"

namespace embercache {

// An option of a command, as completion and the manual page need it.
struct OptionView {
  std::vector<std::string> names;  // with dashes; empty for a positional one
  std::string value;               // what it takes: "FILE"; empty for a flag
  std::string description;
  std::string default_value;
  bool takes_value = false;
  bool required = false;
};

struct CommandView {
  std::string name;
  std::string description;
  std::vector<OptionView> options;
  std::vector<std::string> examples;  // command lines
};

// The commands of the program, in the order of --help.
std::vector<CommandView> DescribeCommands(const CLI::App& app);

// A script that completes commands, options and names of backends. Invalid for another shell than
// bash, zsh or fish.
Result<std::string> CompletionScript(const std::vector<CommandView>& commands,
                                     std::string_view shell);

// The manual page, as roff (man 7).
std::string ManualPage(const std::vector<CommandView>& commands, std::string_view description);

}  // namespace embercache
