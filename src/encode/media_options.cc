#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "embercache/media.h"

namespace embercache {
namespace {

using Json = nlohmann::json;

std::string Shown(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::array<uint8_t, 3>> ParseColour(const std::string& text) {
  if (text.size() != 7 || text[0] != '#') return std::nullopt;
  std::array<uint8_t, 3> colour{};
  for (size_t i = 0; i < 3; ++i) {
    const int high = HexDigit(text[1 + 2 * i]);
    const int low = HexDigit(text[2 + 2 * i]);
    if (high < 0 || low < 0) return std::nullopt;
    colour[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return colour;
}

Status SetBackground(const Json& value, MediaOptions& options) {
  if (value == "none") {
    options.composite_alpha = false;
    return Status::Ok();
  }
  const auto colour = value.is_string() ? ParseColour(value.get<std::string>()) : std::nullopt;
  if (!colour) {
    return Status::Invalid(fmt::format(
        "option background is {}; it has to be a colour such as \"#ffffff\", or \"none\"",
        Shown(value)));
  }
  options.background = *colour;
  return Status::Ok();
}

Status SetOption(const std::string& name, const Json& value, MediaOptions& options) {
  if (name == "background") return SetBackground(value, options);
  if (name == "apply_exif_orientation") {
    if (!value.is_boolean()) {
      return Status::Invalid(fmt::format(
          "option apply_exif_orientation is {}; it has to be true or false", Shown(value)));
    }
    options.apply_exif_orientation = value.get<bool>();
    return Status::Ok();
  }
  if (name == "sixteen_bit") {
    if (value != "scale" && value != "clip") {
      return Status::Invalid(fmt::format(
          "option sixteen_bit is {}; it has to be \"scale\" or \"clip\"", Shown(value)));
    }
    options.sixteen_bit = value == "clip" ? SixteenBit::kClip : SixteenBit::kScale;
    return Status::Ok();
  }
  return Status::Invalid(fmt::format(
      "unknown option {}; known are apply_exif_orientation, background, sixteen_bit", Shown(name)));
}

}  // namespace

std::string MediaOptions::Canonical() const {
  const MediaOptions defaults;
  std::string text;
  if (!apply_exif_orientation) text += "apply_exif_orientation=false\n";
  if (!composite_alpha) {
    text += "background=none\n";
  } else if (background != defaults.background) {
    text += fmt::format("background=#{:02x}{:02x}{:02x}\n", background[0], background[1],
                        background[2]);
  }
  if (sixteen_bit == SixteenBit::kClip) text += "sixteen_bit=clip\n";
  return text;
}

Result<MediaOptions> ParseMediaOptions(std::string_view json_object) {
  MediaOptions options;
  if (json_object.empty()) return options;
  const Json json = Json::parse(json_object, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Status::Invalid("options has to be a JSON object");
  for (const auto& [name, value] : json.items()) {
    EMBERCACHE_RETURN_IF_ERROR(SetOption(name, value, options));
  }
  return options;
}

}  // namespace embercache
