#include "src/base/units.h"

#include <gtest/gtest.h>

namespace embercache {
namespace {

TEST(UnitsTest, SizesAreReadInDecimalAndBinaryUnits) {
  EXPECT_EQ(ParseBytes("0").value(), 0U);
  EXPECT_EQ(ParseBytes("4096").value(), 4096U);
  EXPECT_EQ(ParseBytes("4GB").value(), 4'000'000'000U);
  EXPECT_EQ(ParseBytes("10GiB").value(), 10ULL << 30);
  EXPECT_EQ(ParseBytes("1.5 kib").value(), 1536U);
}

TEST(UnitsTest, WhatIsNoSizeIsRefusedByName) {
  for (const char* text : {"", "GiB", "-1", "4 Gigs", "1e3", "nan", "4GiB x", "99999999TiB"}) {
    const auto result = ParseBytes(text);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_NE(result.status().message().find("'" + std::string(text) + "'"), std::string::npos);
  }
}

TEST(UnitsTest, DurationsNeedAUnit) {
  EXPECT_EQ(ParseDuration("500ms").value(), std::chrono::milliseconds(500));
  EXPECT_EQ(ParseDuration("2s").value(), std::chrono::seconds(2));
  EXPECT_EQ(ParseDuration("1.5m").value(), std::chrono::seconds(90));
  EXPECT_FALSE(ParseDuration("500").ok());
  EXPECT_FALSE(ParseDuration("5 days").ok());
}

TEST(UnitsTest, BytesAreFormattedForPeople) {
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(10ULL << 30), "10.0 GiB");
}

}  // namespace
}  // namespace embercache
