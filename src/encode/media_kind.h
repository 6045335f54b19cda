#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace embercache {

// What media bytes are, told by how they begin.
enum class MediaKind : uint8_t { kUnknown, kJpeg, kPng, kWebp, kGif, kNotServed };

struct DetectedMedia {
  MediaKind kind = MediaKind::kUnknown;
  // "jpeg", "png", …, also for the kinds that are not served; "" for unknown ones.
  std::string_view name;
};

DetectedMedia DetectMedia(std::span<const std::byte> media);

}  // namespace embercache
