#include "src/encode/exif.h"

#include <cstring>
#include <string_view>

namespace embercache {
namespace {

constexpr uint16_t kOrientationTag = 0x0112;
constexpr uint16_t kByteType = 1;
constexpr uint16_t kShortType = 3;
constexpr uint16_t kLongType = 4;
constexpr size_t kEntryBytes = 12;

// Numbers of either byte order out of a block; 0 where the block has ended.
class TiffReader {
 public:
  TiffReader(std::span<const std::byte> block, bool big_endian)
      : block_(block), big_endian_(big_endian) {}

  uint32_t Number(size_t offset, size_t bytes) const {
    if (offset > block_.size() || bytes > block_.size() - offset) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < bytes; ++i) {
      const size_t at = big_endian_ ? offset + i : offset + bytes - 1 - i;
      value = value << 8 | static_cast<uint32_t>(block_[at]);
    }
    return value;
  }

 private:
  std::span<const std::byte> block_;
  bool big_endian_;
};

uint32_t OrientationValue(const TiffReader& tiff, size_t entry) {
  switch (tiff.Number(entry + 2, 2)) {
    case kByteType:
      return tiff.Number(entry + 8, 1);
    case kShortType:
      return tiff.Number(entry + 8, 2);
    case kLongType:
      return tiff.Number(entry + 8, 4);
    default:
      return 0;
  }
}

}  // namespace

Turn TurnOf(Orientation orientation) {
  switch (orientation) {
    case Orientation::kNone:
      return {};
    case Orientation::kMirrored:
      return {.mirror_x = true};
    case Orientation::kRotated180:
      return {.mirror_x = true, .mirror_y = true};
    case Orientation::kFlipped:
      return {.mirror_y = true};
    case Orientation::kTransposed:
      return {.transpose = true};
    case Orientation::kRotate90:
      return {.mirror_y = true, .transpose = true};
    case Orientation::kTransverse:
      return {.mirror_x = true, .mirror_y = true, .transpose = true};
    case Orientation::kRotate270:
      return {.mirror_x = true, .transpose = true};
  }
  return {};
}

Orientation ExifOrientation(std::span<const std::byte> exif) {
  std::string_view text(reinterpret_cast<const char*>(exif.data()), exif.size());
  constexpr std::string_view kHead("Exif\0\0", 6);
  if (text.starts_with(kHead)) {
    exif = exif.subspan(kHead.size());
    text.remove_prefix(kHead.size());
  }
  const bool big_endian = text.starts_with("MM");
  if (!big_endian && !text.starts_with("II")) return Orientation::kNone;
  const TiffReader tiff(exif, big_endian);
  if (tiff.Number(2, 2) != 42) return Orientation::kNone;
  const size_t directory = tiff.Number(4, 4);
  const uint32_t entries = tiff.Number(directory, 2);
  for (uint32_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (tiff.Number(entry, 2) != kOrientationTag) continue;
    const uint32_t value = OrientationValue(tiff, entry);
    return value >= 1 && value <= 8 ? static_cast<Orientation>(value) : Orientation::kNone;
  }
  return Orientation::kNone;
}

}  // namespace embercache
