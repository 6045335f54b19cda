#include "src/store/redacted_options.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace embercache {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kHidden = "***";
constexpr std::array<std::string_view, 6> kSecretWords = {"password", "passwd",     "secret",
                                                          "token",    "credential", "_key"};

// A file that holds a secret is none.
bool IsSecret(const std::string& option) {
  if (option.ends_with("_file")) return false;
  return std::any_of(kSecretWords.begin(), kSecretWords.end(),
                     [&](std::string_view word) { return option.find(word) != option.npos; });
}

// "scheme://user:password@host" and "user:password@host" without what stands before the '@'.
std::string WithoutUser(const std::string& text) {
  const size_t at = text.rfind('@');
  if (at == text.npos || text.find(':') > at) return text;
  const size_t scheme = text.find("://");
  const size_t begin = scheme < at ? scheme + 3 : 0;
  return text.substr(0, begin) + std::string(kHidden) + text.substr(at);
}

Json Redacted(const Json& value, bool hide_text) {
  if (value.is_string()) return hide_text ? Json(kHidden) : Json(WithoutUser(value));
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

std::string RedactedOptions(std::string_view json) {
  const Json options = Json::parse(json, nullptr, false);
  if (!options.is_object()) return std::string(kHidden);
  return Redacted(options, false).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace embercache
