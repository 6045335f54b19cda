#include <fmt/format.h>

#include <memory>

#include "src/cli/commands.h"
#include "src/cli/exit_code.h"
#include "src/server/version.h"

namespace embercache {

void AddVersionCommand(CLI::App& app, int* exit_code) {
  CLI::App* const command = app.add_subcommand("version", "Print the version");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "As a JSON object");
  SetExamples(*command, {"embercache version", "embercache version --json"});
  command->callback([json, exit_code] {
    if (*json) {
      fmt::print("{{\"version\":\"{}\",\"envelope_version\":{}}}\n", Version(), kEnvelopeVersion);
    } else {
      fmt::print("embercache {}\n", Version());
    }
    *exit_code = kExitFine;
  });
}

}  // namespace embercache
