#include "src/server/base64.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

namespace embercache {
namespace {

std::string Decode(std::string text) {
  const auto bytes = DecodeBase64InPlace(std::as_writable_bytes(std::span(text)));
  if (!bytes.ok()) return "error: " + bytes.status().message();
  return {reinterpret_cast<const char*>(bytes->data()), bytes->size()};
}

TEST(Base64, DecodesTheVectorsOfRfc4648) {
  EXPECT_EQ(Decode(""), "");
  EXPECT_EQ(Decode("Zg=="), "f");
  EXPECT_EQ(Decode("Zm8="), "fo");
  EXPECT_EQ(Decode("Zm9v"), "foo");
  EXPECT_EQ(Decode("Zm9vYg=="), "foob");
  EXPECT_EQ(Decode("Zm9vYmE="), "fooba");
  EXPECT_EQ(Decode("Zm9vYmFy"), "foobar");
}

TEST(Base64, TakesTextWithoutPadding) {
  EXPECT_EQ(Decode("Zg"), "f");
  EXPECT_EQ(Decode("Zm9vYmE"), "fooba");
}

TEST(Base64, GivesBackWhatWasEncodedForEveryLength) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::mt19937 random(1);
  std::string bytes;
  for (size_t length = 0; length < 300; ++length) {
    std::string text;
    for (size_t i = 0; i < bytes.size(); i += 3) {
      uint32_t word = 0;
      for (size_t k = 0; k < 3; ++k) {
        word = word << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
      }
      for (size_t k = 0; k < 4; ++k) {
        text += i + k > bytes.size() ? '=' : kDigits[word >> (18 - 6 * k) & 63];
      }
    }
    ASSERT_EQ(Decode(text), bytes) << length;
    bytes += static_cast<char>(random());
  }
}

TEST(Base64, NamesTheCharacterThatIsWrong) {
  EXPECT_EQ(Decode("Zm9v\nYmFy"), "error: the base64 text was cut short");
  EXPECT_EQ(Decode("Zm9vYm-y"), "error: character 6 of the base64 text is 0x2d");
  EXPECT_EQ(Decode("Zm=vYmFy"), "error: character 2 of the base64 text is 0x3d");
  EXPECT_EQ(Decode("Z==="), "error: character 1 of the base64 text is 0x3d");
}

TEST(Base64, RefusesTextThatWasCutShort) {
  EXPECT_EQ(Decode("Zm9vY"), "error: the base64 text was cut short");
}

}  // namespace
}  // namespace embercache
