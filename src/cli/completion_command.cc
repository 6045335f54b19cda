#include <fmt/format.h>

#include <memory>

#include "src/cli/commands.h"
#include "src/cli/describe_app.h"
#include "src/cli/report.h"

namespace embercache {

void AddCompletionCommand(CLI::App& app, int* exit_code) {
  CLI::App* const command =
      app.add_subcommand("completion", "Print a script that completes command lines in a shell");
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")->required();
  SetExamples(*command, {"embercache completion bash >embercache.bash",
                         "embercache completion zsh >_embercache",
                         "embercache completion fish >embercache.fish"});
  command->callback([&app, shell, exit_code] {
    const auto script = CompletionScript(DescribeCommands(app), *shell);
    if (!script.ok()) {
      *exit_code = Fail(script.status(), kExitUsage);
      return;
    }
    fmt::print("{}", *script);
    *exit_code = kExitFine;
  });
}

void AddManCommand(CLI::App& app, int* exit_code) {
  CLI::App* const command = app.add_subcommand("man", "Print the manual page, for man -l");
  SetExamples(*command, {"embercache man >embercache.1"});
  command->callback([&app, exit_code] {
    fmt::print("{}", ManualPage(DescribeCommands(app), app.get_description()));
    *exit_code = kExitFine;
  });
}

}  // namespace embercache
