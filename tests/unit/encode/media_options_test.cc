#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "embercache/media.h"

namespace embercache {
namespace {

using ::testing::HasSubstr;

std::string CanonicalOf(std::string_view json) {
  const auto options = ParseMediaOptions(json);
  EXPECT_TRUE(options.ok()) << options.status().ToString();
  return options.ok() ? options->Canonical() : "";
}

TEST(MediaOptionsTest, NoOptionsEqualTheDefaultsSpeltOut) {
  EXPECT_EQ(CanonicalOf(""), "");
  EXPECT_EQ(CanonicalOf("{}"), "");
  EXPECT_EQ(CanonicalOf(R"({"background":"#FFFFFF","apply_exif_orientation":true,
                            "sixteen_bit":"scale"})"),
            "");
}

TEST(MediaOptionsTest, TheCanonicalTextDoesNotDependOnOrderOrSpelling) {
  const std::string expected =
      "apply_exif_orientation=false\nbackground=#0a0b0c\nsixteen_bit=clip\n";
  EXPECT_EQ(CanonicalOf(R"({"sixteen_bit":"clip","background":"#0A0B0C",
                            "apply_exif_orientation":false})"),
            expected);
  EXPECT_EQ(CanonicalOf(R"({"background":"#0a0b0c","apply_exif_orientation":false,
                            "sixteen_bit":"clip"})"),
            expected);
}

TEST(MediaOptionsTest, BackgroundNoneDropsAlpha) {
  const auto options = ParseMediaOptions(R"({"background":"none"})");
  ASSERT_TRUE(options.ok());
  EXPECT_FALSE(options->composite_alpha);
  EXPECT_EQ(options->Canonical(), "background=none\n");
}

TEST(MediaOptionsTest, WrongOptionsAreRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"colour":"red"})", "unknown option \"colour\"; known are"},
      {R"({"background":"red"})", "option background is \"red\""},
      {R"({"background":"#ff00f"})", "option background is \"#ff00f\""},
      {R"({"background":"#ggffff"})", "option background is \"#ggffff\""},
      {R"({"background":7})", "option background is 7"},
      {R"({"apply_exif_orientation":"yes"})", "option apply_exif_orientation is \"yes\""},
      {R"({"sixteen_bit":"round"})", "option sixteen_bit is \"round\""},
      {R"([])", "has to be a JSON object"},
      {R"({"background":)", "has to be a JSON object"},
  };
  for (const auto& [json, message] : cases) {
    const auto options = ParseMediaOptions(json);
    ASSERT_FALSE(options.ok()) << json;
    EXPECT_EQ(options.status().code(), StatusCode::kInvalid) << json;
    EXPECT_THAT(options.status().message(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace embercache
