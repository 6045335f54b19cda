#pragma once

#include <CLI/CLI.hpp>
#include <set>
#include <string>
#include <vector>

#include "embercache/status.h"

namespace embercache {

// An option's value, and where it comes from: "flag", "environment", "file" or "default".
struct Setting {
  std::string name;                 // without dashes: "max_items"
  std::vector<std::string> values;  // none: nobody gave one, and the option has no default
  std::string origin;
};

// Names of the options of `command` that are settings: all with a long name, but for those that are
// marked configurable(false).
std::set<std::string> SettingNames(const CLI::App& command);

// Fills the settings of `command` that no flag gave: from the variables EMBERCACHE_<OPTION>, then
// from the TOML file that its option --config names, whose keys are the options' names. Tells of
// each one. Keys in `others` are those of other commands, and passed over. Invalid names the
// variable or the key that is wrong or unknown.
Result<std::vector<Setting>> ResolveSettings(CLI::App& command,
                                             const std::set<std::string>& others = {});

// Warns in the log of each variable named EMBERCACHE_… that no option of `command` and no store
// takes.
void WarnOfUnknownVariables(const CLI::App& command);

}  // namespace embercache
