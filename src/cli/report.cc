#include "src/cli/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace embercache {

int Fail(const Status& status, int exit_code) {
  std::string line = status.message();
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::fflush(stdout);
  fmt::print(stderr, "embercache: {}\n", line);
  return exit_code;
}

int ExitCodeOf(const Status& status) {
  if (status.code() == StatusCode::kInvalid) return kExitUsage;
  if (status.code() == StatusCode::kNotFound) return kExitNotFound;
  return kExitFailed;
}

std::string DumpJson(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void PrintJson(const nlohmann::ordered_json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace embercache
