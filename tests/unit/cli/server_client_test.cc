#include "src/cli/server_client.h"

#include <gtest/gtest.h>

namespace embercache {
namespace {

std::string Parsed(std::string_view text) {
  const auto server = ParseServerAddress(text);
  return server.ok() ? server->host + " " + server->port : "error";
}

TEST(ServerAddressTest, IsHostAndPort) {
  EXPECT_EQ(Parsed("http://127.0.0.1:9000"), "127.0.0.1 9000");
  EXPECT_EQ(Parsed("http://127.0.0.1:9000/"), "127.0.0.1 9000");
  EXPECT_EQ(Parsed("localhost"), "localhost 8080");
  EXPECT_EQ(Parsed("http://[::1]:81"), "::1 81");
  EXPECT_EQ(Parsed("[::1]"), "::1 8080");
  EXPECT_EQ(ParseServerAddress("[::1]:81")->Authority(), "[::1]:81");
}

TEST(ServerAddressTest, IsRefusedWhenItIsNone) {
  for (const char* text : {"", "http://", ":80", "a:", "a:b", "a:123456", "https://a", "[::1",
                           "[::1]x", "http://a/b", "a:80/b"}) {
    EXPECT_EQ(Parsed(text), "error") << text;
  }
}

}  // namespace
}  // namespace embercache
