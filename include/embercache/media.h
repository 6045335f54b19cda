#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "embercache/status.h"

namespace embercache {

// How a 16-bit grey image becomes 8 bits.
enum class SixteenBit : uint8_t {
  kScale,  // the high byte, as 16-bit colour images are reduced
  kClip,   // the smaller of the value and 255, as Pillow's convert("RGB") does
};

// What a caller may ask for when media become pixels. The defaults are what people expect to see;
// each differs from Pillow's convert("RGB"), and each can be set to what Pillow does.
struct MediaOptions {
  // Alpha is composited on this colour (red, green, blue).
  std::array<uint8_t, 3> background = {255, 255, 255};
  // False: alpha is dropped, and the colours under it show (option value "none").
  bool composite_alpha = true;
  // Turns the picture as EXIF says, before its size is looked at.
  bool apply_exif_orientation = true;
  SixteenBit sixteen_bit = SixteenBit::kScale;

  // Canonical text: the options that are not at their default, in alphabetical order, each as
  // "name=value\n". Equal options have equal texts; the defaults have the empty text. Part of the
  // key of an embedding, so it never changes for given options.
  std::string Canonical() const;

  bool operator==(const MediaOptions&) const = default;
};

// Reads the JSON object of a request's `options`; an empty text is an empty object:
//   {"background": "#rrggbb" | "none", "apply_exif_orientation": bool,
//    "sixteen_bit": "scale" | "clip"}
// Invalid names an unknown option, or the value that is wrong and what would be right.
Result<MediaOptions> ParseMediaOptions(std::string_view json_object);

}  // namespace embercache
