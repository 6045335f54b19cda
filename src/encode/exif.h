#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace embercache {

// How a stored picture has to be turned to be upright: EXIF's numbers, 1 (as it is) to 8.
enum class Orientation : uint8_t {
  kNone = 1,
  kMirrored = 2,
  kRotated180 = 3,
  kFlipped = 4,
  kTransposed = 5,
  kRotate90 = 6,  // clockwise, to be upright
  kTransverse = 7,
  kRotate270 = 8,
};

// A turn as a transposition (which comes last) of a picture mirrored along its stored axes.
struct Turn {
  bool mirror_x = false;
  bool mirror_y = false;
  bool transpose = false;
};
Turn TurnOf(Orientation orientation);

// Reads the orientation out of an EXIF block, with or without its "Exif\0\0" head. kNone for
// anything that is not such a block, has no orientation, or one out of range.
Orientation ExifOrientation(std::span<const std::byte> exif);

}  // namespace embercache
