#include "src/cache/bad_keys.h"

#include <gtest/gtest.h>

#include "tests/support/test_embeddings.h"

namespace embercache {
namespace {

TEST(BadKeysTest, AKeyIsKnownFromItsReportUntilItIsErased) {
  BadKeys keys;
  EXPECT_FALSE(keys.Contains(TestKey(1)));
  EXPECT_TRUE(keys.Add(TestKey(1)));
  EXPECT_FALSE(keys.Add(TestKey(1))) << "known";
  EXPECT_TRUE(keys.Contains(TestKey(1)));
  EXPECT_FALSE(keys.Contains(TestKey(2)));
  keys.Erase(TestKey(1));
  keys.Erase(TestKey(2));
  EXPECT_FALSE(keys.Contains(TestKey(1)));
  EXPECT_TRUE(keys.Add(TestKey(1)));
}

TEST(BadKeysTest, TheOldestIsForgottenWhenThereAreTooMany) {
  BadKeys keys(3);
  for (uint64_t number = 0; number < 5; ++number) keys.Add(TestKey(number));
  EXPECT_EQ(keys.size(), 3U);
  EXPECT_FALSE(keys.Contains(TestKey(1)));
  EXPECT_TRUE(keys.Contains(TestKey(2)));
  EXPECT_TRUE(keys.Contains(TestKey(4)));
}

TEST(BadKeysTest, ErasedKeysTakeNoRoomAndOneReportedAgainIsYoung) {
  BadKeys keys(3);
  keys.Add(TestKey(0));
  for (uint64_t round = 0; round < 10; ++round) {
    keys.Add(TestKey(1));
    keys.Erase(TestKey(1));
  }
  EXPECT_TRUE(keys.Contains(TestKey(0)));
  keys.Erase(TestKey(0));
  keys.Add(TestKey(1));
  keys.Add(TestKey(2));
  keys.Erase(TestKey(1));
  keys.Add(TestKey(3));
  keys.Add(TestKey(1));
  keys.Add(TestKey(4));
  EXPECT_EQ(keys.size(), 3U);
  EXPECT_FALSE(keys.Contains(TestKey(2))) << "the oldest report";
  EXPECT_TRUE(keys.Contains(TestKey(1)));
}

TEST(BadKeysTest, AtMostTenObjectsASecondAreRemoved) {
  BadKeys keys;
  int admitted = 0;
  for (int ms = 0; ms < 1000; ++ms) {
    if (keys.AdmitRemoval(TimePoint(std::chrono::milliseconds(ms)))) ++admitted;
  }
  EXPECT_EQ(admitted, 10);
}

}  // namespace
}  // namespace embercache
