#include "src/base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <iterator>
#include <span>
#include <string>

namespace embercache {
namespace {

struct Unit {
  std::string_view name;  // lower case
  double factor;
};

constexpr Unit kByteUnits[] = {
    {"", 1},
    {"b", 1},
    {"kb", 1e3},
    {"mb", 1e6},
    {"gb", 1e9},
    {"tb", 1e12},
    {"kib", 1024.0},
    {"mib", 1048576.0},
    {"gib", 1073741824.0},
    {"tib", 1099511627776.0},
};
constexpr Unit kDurationUnits[] = {
    {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 6e10}, {"h", 3.6e12}};

// A non-negative number, optional blanks, a unit of `units`. Negative when it is none of that.
double ParseQuantity(std::string_view text, std::span<const Unit> units) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || !(number >= 0)) return -1;
  std::string unit(rest, end);
  unit.erase(0, unit.find_first_not_of(' ') == std::string::npos ? unit.size()
                                                                 : unit.find_first_not_of(' '));
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const Unit& u : units) {
    if (u.name == unit) return number * u.factor;
  }
  return -1;
}

}  // namespace

Result<uint64_t> ParseBytes(std::string_view text) {
  const double bytes = ParseQuantity(text, kByteUnits);
  if (bytes < 0 || bytes > 9e18) {
    return Status::Invalid(fmt::format(
        "'{}' is not a size; write a number with B, KB, MB, GB, TB, KiB, MiB, GiB or TiB", text));
  }
  return static_cast<uint64_t>(std::llround(bytes));
}

Result<Duration> ParseDuration(std::string_view text) {
  const double ns = ParseQuantity(text, kDurationUnits);
  if (ns < 0 || ns > 9e18) {
    return Status::Invalid(
        fmt::format("'{}' is not a duration; write a number with us, ms, s, m or h", text));
  }
  return Duration(std::llround(ns));
}

std::string FormatBytes(uint64_t bytes) {
  constexpr std::string_view kNames[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kNames)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kNames[unit]);
}

}  // namespace embercache
