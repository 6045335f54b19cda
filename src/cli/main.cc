#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "src/cli/commands.h"
#include "src/cli/exit_code.h"
#include "src/server/version.h"

namespace {

// CLI11 says of an unknown command that one is missing.
bool IsUnknownCommand(const CLI::App& app, const std::string& word) {
  const auto commands =
      app.get_subcommands([&](const CLI::App* command) { return command->check_name(word); });
  return !word.empty() && word.front() != '-' && commands.empty();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A shared cache for the embeddings of multimodal encoders", "embercache");
  app.require_subcommand(1);
  app.set_version_flag("--version", fmt::format("embercache {}", embercache::Version()),
                       "Print the version and exit");
  int exit_code = embercache::kExitFine;
  const std::vector<std::string> arguments(argv + std::min(argc, 2), argv + argc);
  embercache::AddCommands(app, arguments, &exit_code);
  if (argc > 1 && IsUnknownCommand(app, argv[1])) {
    fmt::print(stderr, "embercache: there is no command '{}'; see embercache --help\n", argv[1]);
    return embercache::kExitUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "embercache: {}\n", error.what());
    return embercache::kExitUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "embercache: {}\n", error.what());
    return embercache::kExitFailed;
  }
  return exit_code;
}
