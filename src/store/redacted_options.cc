#include "src/store/redacted_options.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>

namespace embercache {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kHidden = "***";
constexpr std::array<std::string_view, 8> kSecretWords = {"pass",  "pwd",        "auth", "secret",
                                                          "token", "credential", "_key", "apikey"};

// A file that holds a secret is none.
bool IsSecret(std::string option) {
  std::transform(option.begin(), option.end(), option.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (option.ends_with("_file")) return false;
  return std::any_of(kSecretWords.begin(), kSecretWords.end(),
                     [&](std::string_view word) { return option.find(word) != option.npos; });
}

Json Redacted(const Json& value, bool hide_text) {
  if (hide_text && (value.is_string() || value.is_number())) return kHidden;
  if (value.is_string()) return WithoutUser(value);
  if (!value.is_structured()) return value;
  Json redacted = value;
  for (const auto& [name, element] : redacted.items()) {
    const bool is_option = value.is_object() && !hide_text;
    element = is_option && IsSecret(name) ? Json(kHidden)
                                          : Redacted(element, hide_text || element.is_structured());
  }
  return redacted;
}

}  // namespace

std::string WithoutUser(const std::string& address) {
  const size_t at = address.rfind('@');
  if (at == address.npos || address.find(':') > at) return address;
  const size_t scheme = address.find("://");
  const size_t begin = scheme < at ? scheme + 3 : 0;
  return address.substr(0, begin) + std::string(kHidden) + address.substr(at);
}

std::string RedactedOptions(std::string_view json) {
  const Json options = Json::parse(json, nullptr, false);
  if (!options.is_object()) return std::string(kHidden);
  return Redacted(options, false).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace embercache
