#include "embercache/digest.h"

#include <gtest/gtest.h>

namespace embercache {
namespace {

// FIPS 180-4, example "abc".
constexpr char kAbc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

TEST(DigestTest, Sha256GivesTheStandardsExample) {
  EXPECT_EQ(Sha256Of("abc").ToHex(), kAbc);
  Sha256 sha;
  sha.Update("a");
  sha.Update("bc");
  EXPECT_EQ(sha.Finish().ToHex(), kAbc);
}

TEST(DigestTest, HexIsReadBackInEitherCaseAndNothingElseIs) {
  EXPECT_EQ(Digest256::FromHex(kAbc), Sha256Of("abc"));
  EXPECT_EQ(Digest256::FromHex(std::string(64, 'A'))->ToHex(), std::string(64, 'a'));
  EXPECT_FALSE(Digest256::FromHex(std::string(63, 'a')));
  EXPECT_FALSE(Digest256::FromHex(std::string(65, 'a')));
  EXPECT_FALSE(Digest256::FromHex(std::string(63, 'a') + "g"));
}

}  // namespace
}  // namespace embercache
