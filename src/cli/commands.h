#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace embercache {

// Each adds a subcommand, which sets `*exit_code` when it runs. `arguments` are those behind the
// subcommand's name.
void AddServeCommand(CLI::App& app, const std::vector<std::string>& arguments, int* exit_code);
void AddConfigCommand(CLI::App& app, int* exit_code);
void AddVersionCommand(CLI::App& app, int* exit_code);

}  // namespace embercache
