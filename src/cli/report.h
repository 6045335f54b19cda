#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "embercache/status.h"
#include "src/cli/exit_code.h"

namespace embercache {

// Says on stderr, in one line, what went wrong. Returns `exit_code`.
int Fail(const Status& status, int exit_code);

// The exit code that fits: usage for Invalid, not found for NotFound, else failed.
int ExitCodeOf(const Status& status);

// On one line; bytes that are no UTF-8 (in names of files) are replaced.
std::string DumpJson(const nlohmann::ordered_json& json);
// On stdout, indented.
void PrintJson(const nlohmann::ordered_json& json);

}  // namespace embercache
