#include "src/cli/option_types.h"

#include <fmt/format.h>

#include <charconv>

namespace embercache {
namespace {

template <typename Number, typename... Format>
bool Parses(const std::string& text, Number* value, Format... format) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *value, format...);
  return error == std::errc() && rest == end;
}

}  // namespace

OptionKind KindOf(const CLI::Option& option) {
  if (option.get_expected_max() == 0) return OptionKind::kSwitch;
  const std::string type = option.get_type_name();
  if (type == kNumberType) return OptionKind::kNumber;
  if (type == kObjectType) return OptionKind::kObject;
  return option.get_items_expected_max() > 1 ? OptionKind::kTexts : OptionKind::kText;
}

// Validators without a description leave the type name as it is.
CLI::Validator WholeNumber(uint64_t least, uint64_t most) {
  const auto check = [=](std::string& text) -> std::string {
    uint64_t value = 0;
    if (Parses(text, &value) && value >= least && value <= most) return {};
    return fmt::format("{} is not a whole number from {} to {}", Quoted(text), least, most);
  };
  return CLI::Validator(check, "");
}

CLI::Validator DecimalNumber(double least, double most) {
  const auto check = [=](std::string& text) -> std::string {
    double value = 0;
    const bool parses = Parses(text, &value, std::chars_format::fixed);
    if (parses && value >= least && value <= most) return {};
    return fmt::format("{} is not a number from {} to {}", Quoted(text), least, most);
  };
  return CLI::Validator(check, "");
}

std::string Quoted(std::string_view text) {
  constexpr size_t kMost = 60;
  if (text.size() <= kMost) return fmt::format("'{}'", text);
  return fmt::format("'{}…' ({} characters)", text.substr(0, kMost), text.size());
}

}  // namespace embercache
