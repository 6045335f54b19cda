#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "embercache/status.h"

namespace embercache {

// Type names of options, which say what a value has to be on the command line, in the environment
// and in the file.
inline constexpr char kNumberType[] = "N";
inline constexpr char kObjectType[] = "JSON|FILE";

// What an option takes, by its type name and the number of its values.
enum class OptionKind { kSwitch, kText, kTexts, kNumber, kObject };
OptionKind KindOf(const CLI::Option& option);

// Decimal digits that say a number from `least` to `most`.
CLI::Validator WholeNumber(uint64_t least, uint64_t most);
// A decimal fraction from `least` to `most`, of which NaN is none.
CLI::Validator DecimalNumber(double least, double most);

// `text` in quotes, cut where it is long.
std::string Quoted(std::string_view text);

// An option with a whole number.
template <typename Number>
CLI::Option* AddNumber(CLI::App& command, const std::string& name, Number& value,
                       const std::string& what, uint64_t least, uint64_t most) {
  return command.add_option(name, value, what)
      ->type_name(kNumberType)
      ->check(WholeNumber(least, most));
}

}  // namespace embercache
