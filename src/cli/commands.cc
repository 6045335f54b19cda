#include "src/cli/commands.h"

namespace embercache {

void AddCommands(CLI::App& app, const std::vector<std::string>& arguments, int* exit_code) {
  AddServeCommand(app, arguments, exit_code);
  AddConfigCommand(app, exit_code);
  AddEncodeCommand(app, exit_code);
  AddGetCommand(app, exit_code);
  AddStatCommand(app, exit_code);
  AddLsCommand(app, exit_code);
  AddVerifyCommand(app, exit_code);
  AddScrubCommand(app, exit_code);
  AddConformanceCommand(app, exit_code);
  AddBenchCommand(app, exit_code);
  AddTopCommand(app, exit_code);
  AddCompletionCommand(app, exit_code);
  AddManCommand(app, exit_code);
  AddVersionCommand(app, exit_code);
}

void SetExamples(CLI::App& command, const std::vector<std::string>& lines) {
  std::string footer = "Examples:";
  for (const std::string& line : lines) footer += "\n  " + line;
  command.footer(footer);
}

}  // namespace embercache
