#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "embercache/media.h"
#include "embercache/status.h"
#include "src/encode/image_source.h"

namespace embercache {

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path << " cannot be read";
  return {std::istreambuf_iterator<char>(file), {}};
}

// A committed media file of tests/golden/encode/media.
inline std::string GoldenMedia(const std::string& name) {
  return ReadFile(std::string(EMBERCACHE_GOLDEN_DIR) + "/media/" + name);
}

inline std::span<const std::byte> AsBytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// A decoded picture, upright: rows of red, green, blue.
struct Picture {
  uint32_t width = 0;
  uint32_t height = 0;
  std::string rgb;
};

inline Result<Picture> Decode(std::span<const std::byte> media, const MediaOptions& options = {},
                              uint64_t max_pixels = 178'000'000) {
  EMBERCACHE_ASSIGN_OR_RETURN(const auto source, OpenImage(media, options, max_pixels));
  const Turn turn = TurnOf(source->orientation());
  Picture picture{source->width(), source->height(), {}};
  if (turn.transpose) std::swap(picture.width, picture.height);
  picture.rgb.resize(size_t{3} * picture.width * picture.height);
  std::vector<uint8_t> row(size_t{4} * source->width());
  for (size_t y = 0; y < source->height(); ++y) {
    EMBERCACHE_RETURN_IF_ERROR(source->ReadRow(row));
    for (size_t x = 0; x < source->width(); ++x) {
      size_t to_x = turn.mirror_x ? source->width() - 1 - x : x;
      size_t to_y = turn.mirror_y ? source->height() - 1 - y : y;
      if (turn.transpose) std::swap(to_x, to_y);
      picture.rgb.replace(3 * (to_y * picture.width + to_x), 3,
                          reinterpret_cast<const char*>(&row[4 * x]), 3);
    }
  }
  return picture;
}

}  // namespace embercache
