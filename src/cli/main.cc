#include <string>
#include <vector>

#include "src/cli/commands.h"
#include "src/cli/exit_code.h"
#include "src/cli/report.h"
#include "src/cli/usage_error.h"
#include "src/server/version.h"

int main(int argc, char** argv) {
  using embercache::Fail;
  using embercache::Status;
  CLI::App app("A shared cache for the embeddings of multimodal encoders", "embercache");
  app.require_subcommand(1);
  app.set_version_flag("--version", "embercache " + std::string(embercache::Version()),
                       "Print the version and exit");
  int exit_code = embercache::kExitFine;
  const std::vector<std::string> words(argv + 1, argv + argc);
  embercache::AddCommands(
      app, words.empty() ? words : std::vector<std::string>(words.begin() + 1, words.end()),
      &exit_code);
  if (const auto wrong = embercache::WrongCommand(app, words)) {
    return Fail(Status::Invalid(*wrong), embercache::kExitUsage);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    return Fail(Status::Invalid(embercache::UsageMessage(app, error)), embercache::kExitUsage);
  } catch (const std::exception& error) {
    return Fail(Status::Internal(error.what()), embercache::kExitFailed);
  }
  return exit_code;
}
