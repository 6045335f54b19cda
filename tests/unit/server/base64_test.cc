#include "src/server/base64.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

namespace embercache {
namespace {

using testing::HasSubstr;

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
  EXPECT_EQ(Decode("Zm9vYm*y"), "error: character 6 of the base64 text is '*'");
  EXPECT_EQ(Decode("Zm9vYm\x01y"), "error: character 6 of the base64 text is 0x01");
  EXPECT_EQ(Decode("Zm9vYmF\xc3"), "error: character 7 of the base64 text is 0xc3");
}

TEST(Base64, SaysThatLineBreaksAreNotTaken) {
  EXPECT_THAT(Decode("Zm9v\nYmFy"), HasSubstr("character 4 of the base64 text is a line break"));
  EXPECT_THAT(Decode("Zm9v\r\nYmFy"), HasSubstr("character 4 of the base64 text is a line break"));
  EXPECT_THAT(Decode("Zm9vYmFy\n"), HasSubstr("character 8 of the base64 text is a line break"));
}

TEST(Base64, SaysThatTheAlphabetForUrlsIsNotTaken) {
  EXPECT_THAT(Decode("Zm9vYm-y"), HasSubstr("character 6 of the base64 text is '-'"));
  EXPECT_THAT(Decode("Zm9vYm_y"), HasSubstr("alphabet for URLs"));
}

TEST(Base64, SaysWhatIsWrongWithThePadding) {
  EXPECT_THAT(Decode("Zm=vYmFy"), HasSubstr("character 2 of the base64 text is '=', which stands"));
  EXPECT_THAT(Decode("Zg=="
                     "Zg=="),
              HasSubstr("character 2 of the base64 text is '='"));
  EXPECT_THAT(Decode("Z==="), HasSubstr("1 characters and 3 '=' behind them"));
  EXPECT_THAT(Decode("Zg="), HasSubstr("2 characters and 1 '=' behind them"));
  EXPECT_THAT(Decode("Zm9v="), HasSubstr("4 characters and 1 '=' behind them"));
  EXPECT_THAT(Decode("===="), HasSubstr("0 characters and 4 '=' behind them"));
}

TEST(Base64, RefusesTextThatWasCutShort) {
  EXPECT_THAT(Decode("Zm9vY"), HasSubstr("5 characters"));
  EXPECT_THAT(Decode("Zm9vY"), HasSubstr("cut short"));
  EXPECT_THAT(Decode("Zm9v*mFyZ"), HasSubstr("'*'"));
}

}  // namespace
}  // namespace embercache
