#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "embercache/media.h"
#include "embercache/status.h"
#include "src/encode/exif.h"
#include "src/encode/media_kind.h"

namespace embercache {

// Longest side of a picture. libpng's own limit; no JPEG, WebP or GIF can be longer.
inline constexpr uint32_t kMaxSide = 1'000'000;

// One still picture, decoded row by row, top to bottom as stored. Not thread-safe.
class ImageSource {
 public:
  virtual ~ImageSource() = default;

  // As stored, before the orientation is applied. At least 1.
  uint32_t width() const { return width_; }
  uint32_t height() const { return height_; }
  Orientation orientation() const { return orientation_; }

  // Decodes the next row into `rgba`, 4 bytes a pixel; alpha is done with, the fourth byte means
  // nothing. The last row also checks that the media ends as it should.
  // REQUIRES: at most height() calls, none after an error; rgba.size() == 4 * width().
  // Errors: Invalid (broken or truncated).
  Status ReadRow(std::span<uint8_t> rgba);

 protected:
  explicit ImageSource(const MediaOptions& options) : options_(options) {}

  // As ReadRow, with the fourth byte alpha where has_alpha_.
  virtual Status DecodeRow(std::span<uint8_t> rgba) = 0;

  const MediaOptions options_;
  uint32_t width_ = 0;
  uint32_t height_ = 0;
  Orientation orientation_ = Orientation::kNone;
  bool has_alpha_ = false;
};

// The picture in `media`, with its header read; `media` must outlive it.
// Errors as Encoder::Prepare.
Result<std::unique_ptr<ImageSource>> OpenImage(std::span<const std::byte> media,
                                               const MediaOptions& options, uint64_t max_pixels);

// ResourceExhausted or Invalid unless a picture of this size may be decoded.
Status CheckImageSize(uint64_t width, uint64_t height, uint64_t max_pixels);

// One decoder each, for media of that kind.
Result<std::unique_ptr<ImageSource>> OpenJpeg(std::span<const std::byte> media,
                                              const MediaOptions& options, uint64_t max_pixels);
Result<std::unique_ptr<ImageSource>> OpenPng(std::span<const std::byte> media,
                                             const MediaOptions& options, uint64_t max_pixels);
Result<std::unique_ptr<ImageSource>> OpenWebp(std::span<const std::byte> media,
                                              const MediaOptions& options, uint64_t max_pixels);
Result<std::unique_ptr<ImageSource>> OpenGif(std::span<const std::byte> media,
                                             const MediaOptions& options, uint64_t max_pixels);

}  // namespace embercache
