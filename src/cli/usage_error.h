#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace embercache {

// What is wrong with the first of the words behind the program's name, where it has to be a command
// or an option of the program; nothing when it is one.
std::optional<std::string> WrongCommand(const CLI::App& app, const std::vector<std::string>& words);

// What is wrong with the words behind a command, which CLI11 refused with `error`: one line that
// says what would be right.
std::string UsageMessage(const CLI::App& app, const CLI::ParseError& error);

// The candidate that `word` was most likely meant to be; nothing when none is near: at most a third
// of its characters are wrong, missing, too many, or swapped with the next.
std::optional<std::string> Nearest(std::string_view word,
                                   const std::vector<std::string>& candidates);

}  // namespace embercache
