#include "src/store/file/object_name.h"

#include <algorithm>
#include <cstddef>

#include "embercache/digest.h"

namespace embercache {
namespace {

constexpr std::string_view kKeyPrefix = "emb_";
constexpr std::string_view kSuffix = ".emb";
constexpr size_t kHexDigits = 64;

bool IsLowerHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsHexDigest(std::string_view text) {
  return text.size() == kHexDigits && IsLowerHex(text);
}

std::string PathOf(std::string_view mark, std::string_view hex) {
  std::string path;
  path.append(hex.substr(0, 2)).append("/").append(hex.substr(2, 2)).append("/");
  return path.append(mark).append(hex).append(kSuffix);
}

}  // namespace

bool IsBareId(std::string_view text) {
  return text.starts_with('x') && IsHexDigest(text.substr(1));
}

bool IsFanOutName(std::string_view name) {
  return name.size() == 2 && IsLowerHex(name);
}

std::string ObjectPath(std::string_view key_or_id) {
  if (IsBareId(key_or_id)) return PathOf("x", key_or_id.substr(1));
  if (key_or_id.starts_with(kKeyPrefix) && IsHexDigest(key_or_id.substr(kKeyPrefix.size()))) {
    return PathOf("", key_or_id.substr(kKeyPrefix.size()));
  }
  return PathOf("x", Sha256Of(key_or_id).ToHex());
}

std::optional<std::string> ObjectId(std::string_view file_name) {
  if (!file_name.ends_with(kSuffix)) return std::nullopt;
  file_name.remove_suffix(kSuffix.size());
  if (IsBareId(file_name)) return std::string(file_name);
  if (IsHexDigest(file_name)) return std::string(kKeyPrefix).append(file_name);
  return std::nullopt;
}

}  // namespace embercache
