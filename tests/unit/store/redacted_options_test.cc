#include "src/store/redacted_options.h"

#include <gtest/gtest.h>

namespace embercache {
namespace {

TEST(RedactedOptions, OptionsWithoutSecretsStayAsTheyAre) {
  EXPECT_EQ(RedactedOptions(R"({"dir":"/a@b","max_bytes":"1GiB","fsync":true,"n":1})"),
            R"({"dir":"/a@b","max_bytes":"1GiB","fsync":true,"n":1})");
}

TEST(RedactedOptions, WhatStandsBeforeTheHostOfAUrlIsHidden) {
  EXPECT_EQ(RedactedOptions(R"({"url":"redis://user:pass@host:1/2"})"),
            R"({"url":"redis://***@host:1/2"})");
  EXPECT_EQ(RedactedOptions(R"({"url":"redis://:p@ss/w@host"})"), R"({"url":"redis://***@host"})");
  EXPECT_EQ(RedactedOptions(R"({"server":"user:pass@host"})"), R"({"server":"***@host"})");
}

TEST(RedactedOptions, OptionsWhoseNameSaysSecretAreHiddenButNotTheFilesThatHoldOne) {
  EXPECT_EQ(RedactedOptions(R"({"password":"x","auth_token":7,"password_file":"/etc/p"})"),
            R"({"password":"***","auth_token":"***","password_file":"/etc/p"})");
  EXPECT_EQ(RedactedOptions(R"({"Password":"x","pwd":"y","apiKey":"z"})"),
            R"({"Password":"***","pwd":"***","apiKey":"***"})");
}

TEST(RedactedOptions, WhatOnlyAPluginUnderstandsIsHiddenButForTrueAndFalse) {
  EXPECT_EQ(
      RedactedOptions(R"({"path":"./p.so","options":{"x":"x","n":1,"on":true,"list":["y"]}})"),
      R"({"path":"./p.so","options":{"x":"***","n":"***","on":true,"list":["***"]}})");
}

TEST(RedactedOptions, AnAddressIsToldWithoutItsUser) {
  EXPECT_EQ(WithoutUser("redis://user:pass@host:1"), "redis://***@host:1");
  EXPECT_EQ(WithoutUser("host:1"), "host:1");
  EXPECT_EQ(WithoutUser("P2PHANDSHAKE"), "P2PHANDSHAKE");
}

TEST(RedactedOptions, WhatIsNoObjectIsHiddenAsAWhole) {
  EXPECT_EQ(RedactedOptions("redis://user:pass@host"), "***");
  EXPECT_EQ(RedactedOptions(R"({"password":"x")"), "***");
}

}  // namespace
}  // namespace embercache
