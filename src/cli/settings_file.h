#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "embercache/status.h"
#include "src/cli/option_types.h"

namespace embercache {

// One key of a file of settings.
struct FileSetting {
  std::vector<std::string> values;  // as the option would have them on the command line
  std::string where;                // file, line and key, for messages
};

// The keys of a TOML file that are in `kinds`; those in `others` are passed over. Invalid names
// file and line, and a key that is unknown or whose value is of another type; strings are no
// numbers, and numbers no booleans.
Result<std::map<std::string, FileSetting>> ReadSettingsFile(
    const std::string& path, const std::map<std::string, OptionKind>& kinds,
    const std::set<std::string>& others);

}  // namespace embercache
