#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace embercache {

// Lets each option of `command` come from EMBERCACHE_<OPTION> too, where the flag is not given.
void TakeFromEnvironment(CLI::App& command);

// Variables named EMBERCACHE_… that none of the options takes.
std::vector<std::string> UnknownVariables(const CLI::App& command);

}  // namespace embercache
