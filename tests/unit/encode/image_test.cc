// What OpenImage accepts and refuses, by content.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/encode/test_media.h"

namespace embercache {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kNoLimit = uint64_t{1} << 40;

Status Failure(const std::string& media, uint64_t max_pixels = kNoLimit) {
  return Decode(AsBytes(media), {}, max_pixels).status();
}

TEST(ImageTest, EmptyAndUnknownContentIsInvalid) {
  EXPECT_EQ(Failure("").code(), StatusCode::kInvalid);
  EXPECT_THAT(Failure("").message(), HasSubstr("empty"));
  EXPECT_EQ(Failure("hello").code(), StatusCode::kInvalid);
  EXPECT_THAT(Failure("hello").message(), HasSubstr("no image of a known kind"));
}

TEST(ImageTest, KnownKindsThatAreNotServedAreUnimplementedByName) {
  const std::pair<std::string, const char*> cases[] = {
      {"%PDF-1.7\n", "pdf"},
      {std::string("\0\0\0\x18", 4) + "ftypmp42....", "mp4 video"},
      {std::string("\0\0\0\x18", 4) + "ftypheic....", "heif"},
      {"BM123456", "bmp"},
      {std::string("II*\0....", 8), "tiff"},
      {"RIFF....WAVEfmt ", "wav audio"},
      {"\x1a\x45\xdf\xa3....", "matroska video"},
  };
  for (const auto& [media, name] : cases) {
    EXPECT_EQ(Failure(media).code(), StatusCode::kUnimplemented) << name;
    EXPECT_THAT(Failure(media).message(), HasSubstr(name));
  }
}

TEST(ImageTest, AnImageCutAnywhereIsInvalid) {
  for (const char* name : {"rgb_420.jpg", "progressive.jpg", "restarts.jpg", "grey.jpg",
                           "rgb_8.png", "rgb_8_interlaced.png", "palette_8_trns.png"}) {
    const std::string whole = GoldenMedia(name);
    ASSERT_TRUE(Decode(AsBytes(whole)).ok()) << name;
    for (size_t length = 1; length < whole.size(); length += length < 200 ? 1 : 97) {
      EXPECT_EQ(Failure(whole.substr(0, length)).code(), StatusCode::kInvalid)
          << name << " cut to " << length << " of " << whole.size();
    }
    EXPECT_FALSE(Decode(AsBytes(whole.substr(0, whole.size() - 1))).ok()) << name;
  }
}

TEST(ImageTest, BytesAfterAnImageDoNotMatter) {
  for (const char* name : {"rgb_420.jpg", "progressive.jpg", "rgb_8.png"}) {
    const std::string whole = GoldenMedia(name);
    const auto with = Decode(AsBytes(whole + std::string(1000, 'x')));
    ASSERT_TRUE(with.ok()) << name << ": " << with.status().ToString();
    EXPECT_EQ(with->rgb, Decode(AsBytes(whole))->rgb);
  }
}

TEST(ImageTest, MorePixelsThanTheLimitAreRefusedWithBothNumbers) {
  for (const char* name : {"rgb_420.jpg", "rgb_8.png"}) {
    const std::string media = GoldenMedia(name);
    const auto whole = Decode(AsBytes(media));
    ASSERT_TRUE(whole.ok());
    const uint64_t pixels = uint64_t{whole->width} * whole->height;
    EXPECT_TRUE(Decode(AsBytes(media), {}, pixels).ok());
    const Status status = Failure(media, pixels - 1);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_FALSE(status.retryable());
    EXPECT_THAT(status.message(), HasSubstr(std::to_string(pixels)));
    EXPECT_THAT(status.message(), HasSubstr(std::to_string(pixels - 1)));
  }
}

TEST(ImageTest, AHeaderThatClaimsAHugePictureIsRefusedBeforeAnythingElse) {
  // Only the header is there: had anything been decoded, the data would have ended early.
  std::string png = GoldenMedia("rgb_8.png").substr(0, 33);
  png.replace(16, 8, std::string("\0\x01\0\0\0\x01\0\0", 8));  // 65536 x 65536
  EXPECT_EQ(Failure(png, 178'000'000).code(), StatusCode::kResourceExhausted);
  png.replace(16, 8, std::string("\0\0\0\x01\x7f\xff\xff\xff", 8));  // 1 x 2^31 - 1
  EXPECT_EQ(Failure(png).code(), StatusCode::kResourceExhausted);
  png.replace(16, 8, std::string("\0\0\0\0\0\0\0\x01", 8));
  EXPECT_EQ(Failure(png).code(), StatusCode::kInvalid);
}

TEST(ImageTest, DamageInTheDataIsInvalid) {
  for (const char* name : {"rgb_8.png", "rgba_8_interlaced.png"}) {
    std::string media = GoldenMedia(name);
    media[media.size() / 2] = static_cast<char>(media[media.size() / 2] ^ 0x10);
    EXPECT_EQ(Failure(media).code(), StatusCode::kInvalid) << name;
  }
  // A restart marker that is not there.
  std::string jpeg = GoldenMedia("restarts.jpg");
  const size_t marker = jpeg.find("\xff\xd3");
  ASSERT_NE(marker, std::string::npos);
  jpeg.erase(marker, 2);
  EXPECT_EQ(Failure(jpeg).code(), StatusCode::kInvalid);
}

TEST(ImageTest, TheOrientationCanBeLeftAlone) {
  const std::string media = GoldenMedia("orientation_6.jpg");
  EXPECT_EQ(Decode(AsBytes(media))->width, 50u);
  EXPECT_EQ(Decode(AsBytes(media), {.apply_exif_orientation = false})->width, 75u);
}

}  // namespace
}  // namespace embercache
