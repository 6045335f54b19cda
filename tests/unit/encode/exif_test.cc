#include <gtest/gtest.h>

#include <string>

#include "src/encode/exif.h"

namespace embercache {
namespace {

Orientation OrientationOf(const std::string& block) {
  return ExifOrientation(std::as_bytes(std::span(block)));
}

// One directory with one entry of the tag, type and value given, in big-endian order.
std::string Block(char tag_low, char type, std::string value, const char* head = "") {
  value.resize(4, '\0');
  std::string block = head;
  if (!block.empty()) block += std::string("\0\0", 2);
  block += std::string("MM\0*\0\0\0\x08\0\x01\x01", 11) + tag_low + std::string("\0", 1) + type +
           std::string("\0\0\0\x01", 4) + value;
  return block;
}

TEST(ExifTest, ReadsTheOrientationInBothByteOrders) {
  EXPECT_EQ(OrientationOf(Block('\x12', 3, std::string("\0\x06", 2))), Orientation::kRotate90);
  EXPECT_EQ(
      OrientationOf(std::string("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x08\0\0\0", 22)),
      Orientation::kRotate270);
}

TEST(ExifTest, TheHeadOfTheJpegSegmentMayStandBeforeIt) {
  EXPECT_EQ(OrientationOf(Block('\x12', 3, std::string("\0\x03", 2), "Exif")),
            Orientation::kRotated180);
}

TEST(ExifTest, TakesBytesAndLongsForShorts) {
  EXPECT_EQ(OrientationOf(Block('\x12', 1, "\x05")), Orientation::kTransposed);
  EXPECT_EQ(OrientationOf(Block('\x12', 4, std::string("\0\0\0\x02", 4))), Orientation::kMirrored);
}

TEST(ExifTest, AnythingElseMeansUpright) {
  EXPECT_EQ(OrientationOf(""), Orientation::kNone);
  EXPECT_EQ(OrientationOf("MM"), Orientation::kNone);
  EXPECT_EQ(OrientationOf("no exif block"), Orientation::kNone);
  EXPECT_EQ(OrientationOf(Block('\x12', 3, std::string("\0\x09", 2))), Orientation::kNone);
  EXPECT_EQ(OrientationOf(Block('\x12', 3, std::string("\0\0", 2))), Orientation::kNone);
  EXPECT_EQ(OrientationOf(Block('\x10', 3, std::string("\0\x06", 2))), Orientation::kNone);
  EXPECT_EQ(OrientationOf(Block('\x12', 2, std::string("\0\x06", 2))), Orientation::kNone);
}

TEST(ExifTest, BlocksThatPointOutsideThemselvesAreHarmless) {
  EXPECT_EQ(OrientationOf(std::string("MM\0*\xff\xff\xff\xff", 8)), Orientation::kNone);
  EXPECT_EQ(OrientationOf(std::string("MM\0*\0\0\0\x08\xff\xff", 10)), Orientation::kNone);
  const std::string whole = Block('\x12', 3, std::string("\0\x06", 2));
  for (size_t length = 0; length < 20; ++length) {
    EXPECT_EQ(OrientationOf(whole.substr(0, length)), Orientation::kNone) << length;
  }
}

}  // namespace
}  // namespace embercache
