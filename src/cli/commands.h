#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace embercache {

// Adds all subcommands.
void AddCommands(CLI::App& app, const std::vector<std::string>& arguments, int* exit_code);

// Each adds a subcommand, which sets `*exit_code` when it runs. `arguments` are those behind the
// subcommand's name.
void AddServeCommand(CLI::App& app, const std::vector<std::string>& arguments, int* exit_code);
void AddConfigCommand(CLI::App& app, int* exit_code);
void AddVersionCommand(CLI::App& app, int* exit_code);
void AddEncodeCommand(CLI::App& app, int* exit_code);
void AddGetCommand(CLI::App& app, int* exit_code);
void AddStatCommand(CLI::App& app, int* exit_code);
void AddLsCommand(CLI::App& app, int* exit_code);
void AddVerifyCommand(CLI::App& app, int* exit_code);
void AddScrubCommand(CLI::App& app, int* exit_code);
void AddConformanceCommand(CLI::App& app, int* exit_code);
void AddBenchCommand(CLI::App& app, int* exit_code);
void AddTopCommand(CLI::App& app, int* exit_code);
void AddCompletionCommand(CLI::App& app, int* exit_code);
void AddManCommand(CLI::App& app, int* exit_code);

// Command lines at the end of --help, one a line.
void SetExamples(CLI::App& command, const std::vector<std::string>& lines);

}  // namespace embercache
