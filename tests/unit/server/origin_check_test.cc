#include "src/server/origin_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace embercache {
namespace {

using testing::HasSubstr;

TEST(OriginCheck, KnowsTheNamesOfThisMachine) {
  for (const char* host :
       {"localhost", "LOCALHOST", "a.localhost", "127.0.0.1", "127.1.2.3", "::1"}) {
    EXPECT_TRUE(IsLoopbackHost(host)) << host;
  }
  for (const char* host : {"", "example.org", "localhost.example.org", "evillocalhost", "10.0.0.1",
                           "0.0.0.0", "::", "128.0.0.1", "[::1]", "2130706433", "127.1"}) {
    EXPECT_FALSE(IsLoopbackHost(host)) << host;
  }
}

TEST(OriginCheck, TakesAPortAndBracketsInAnAuthority) {
  for (const char* authority :
       {"localhost", "localhost:8080", "127.0.0.1:1", "[::1]", "[::1]:80"}) {
    EXPECT_TRUE(IsLoopbackAuthority(authority)) << authority;
  }
  for (const char* authority : {"::1", "[::1", "[::1]x", "localhost:80x", "user@localhost:80",
                                "localhost:123456", "[fe80::1]:80"}) {
    EXPECT_FALSE(IsLoopbackAuthority(authority)) << authority;
  }
}

TEST(OriginCheck, RefusesForeignHostsAndOrigins) {
  EXPECT_EQ(ForeignHeader("localhost", ""), "");
  EXPECT_EQ(ForeignHeader("localhost:8080", "http://127.0.0.1:3000"), "");
  EXPECT_THAT(ForeignHeader("evil.example", ""), HasSubstr("evil.example"));
  EXPECT_THAT(ForeignHeader("", ""), HasSubstr("Host"));
  EXPECT_THAT(ForeignHeader("localhost", "https://evil.example"), HasSubstr("Origin"));
  EXPECT_THAT(ForeignHeader("localhost", "null"), HasSubstr("Origin"));
}

}  // namespace
}  // namespace embercache
