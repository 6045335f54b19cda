#include "src/encode/image_source.h"

#include <fmt/format.h>

namespace embercache {
namespace {

constexpr const char* kServed = "jpeg, png, webp, gif";

// Rounded (colour * alpha + background * (255 - alpha)) / 255; exact for all bytes, and what
// Pillow's paste and alpha_composite give on an opaque ground.
uint8_t Blend(uint32_t colour, uint32_t background, uint32_t alpha) {
  const uint32_t sum = colour * alpha + background * (255 - alpha) + 128;
  return static_cast<uint8_t>((sum + (sum >> 8)) >> 8);
}

void Composite(std::span<uint8_t> rgba, const std::array<uint8_t, 3>& background) {
  for (size_t i = 0; i < rgba.size(); i += 4) {
    const uint32_t alpha = rgba[i + 3];
    for (size_t c = 0; c < 3; ++c) rgba[i + c] = Blend(rgba[i + c], background[c], alpha);
  }
}

}  // namespace

Status ImageSource::ReadRow(std::span<uint8_t> rgba) {
  EMBERCACHE_RETURN_IF_ERROR(DecodeRow(rgba));
  if (has_alpha_ && options_.composite_alpha) Composite(rgba, options_.background);
  return Status::Ok();
}

Status CheckImageSize(uint64_t width, uint64_t height, uint64_t max_pixels) {
  if (width == 0 || height == 0) {
    return Status::Invalid(fmt::format("the image is {}x{} pixels", width, height));
  }
  if (width > kMaxSide || height > kMaxSide) {
    return Status(
        StatusCode::kResourceExhausted,
        fmt::format("the image is {}x{} pixels; the limit is {} a side", width, height, kMaxSide));
  }
  if (width * height > max_pixels) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("the image has {} pixels ({}x{}); the limit is {} (--max-pixels)",
                              width * height, width, height, max_pixels));
  }
  return Status::Ok();
}

Result<std::unique_ptr<ImageSource>> OpenImage(std::span<const std::byte> media,
                                               const MediaOptions& options, uint64_t max_pixels) {
  if (media.empty()) return Status::Invalid("the media is empty");
  const DetectedMedia detected = DetectMedia(media);
  switch (detected.kind) {
    case MediaKind::kJpeg:
      return OpenJpeg(media, options, max_pixels);
    case MediaKind::kPng:
      return OpenPng(media, options, max_pixels);
    case MediaKind::kWebp:
      return OpenWebp(media, options, max_pixels);
    case MediaKind::kGif:
      return OpenGif(media, options, max_pixels);
    case MediaKind::kUnknown:
      return Status::Invalid(
          fmt::format("the content is no image of a known kind; served are {}", kServed));
    default:
      return Status::Unimplemented(
          fmt::format("media of the kind {} is not served; served are {}", detected.name, kServed));
  }
}

}  // namespace embercache
