#pragma once

#include <CLI/CLI.hpp>

namespace embercache {

// Each adds a subcommand, which sets `*exit_code` when it runs.
void AddServeCommand(CLI::App& app, int* exit_code);
void AddVersionCommand(CLI::App& app, int* exit_code);

}  // namespace embercache
