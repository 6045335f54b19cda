#include "src/store/redis/redis_config.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tests/conformance/temp_folder.h"

namespace embercache::redis {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class RedisConfigTest : public testing::Test {
 protected:
  void SetUp() override { ClearEnvironment(); }
  void TearDown() override { ClearEnvironment(); }
  static void ClearEnvironment() {
    unsetenv("EMBERCACHE_REDIS_USERNAME");
    unsetenv("EMBERCACHE_REDIS_PASSWORD");
  }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.path() + "/" + name) << text;
    return folder_.path() + "/" + name;
  }
  static std::string Message(const std::string& json) {
    const auto config = RedisConfig::Parse(json);
    EXPECT_EQ(config.status().code(), StatusCode::kInvalid) << json;
    return config.status().message();
  }

  TempFolder folder_;
};

TEST_F(RedisConfigTest, UrlsNameHostPortUserAndDatabase) {
  const auto full = ParseRedisUrl("redis://cache@redis.example:7000/3");
  ASSERT_TRUE(full.ok()) << full.status().ToString();
  EXPECT_EQ(full->endpoint.host, "redis.example");
  EXPECT_EQ(full->endpoint.port, 7000);
  EXPECT_EQ(full->username, "cache");
  EXPECT_EQ(full->database, 3);
  EXPECT_FALSE(full->tls);

  const auto brief = ParseRedisUrl("rediss://10.0.0.1");
  ASSERT_TRUE(brief.ok());
  EXPECT_EQ(brief->endpoint.ToString(), "10.0.0.1:6379");
  EXPECT_EQ(brief->database, -1);
  EXPECT_TRUE(brief->tls);

  const auto ipv6 = ParseRedisUrl("redis://[::1]:7001/");
  ASSERT_TRUE(ipv6.ok());
  EXPECT_EQ(ipv6->endpoint.host, "::1");
  EXPECT_EQ(ipv6->endpoint.ToString(), "[::1]:7001");

  const auto unix_socket = ParseRedisUrl("unix:///run/redis/redis.sock");
  ASSERT_TRUE(unix_socket.ok());
  EXPECT_EQ(unix_socket->endpoint.ToString(), "/run/redis/redis.sock");
}

TEST_F(RedisConfigTest, WrongUrlsAreRefusedAndSayWhatWouldBeRight) {
  for (const char* url :
       {"", "localhost:6379", "http://host", "redis://", "redis://:6379", "redis://host:0",
        "redis://host:65536", "redis://host:x", "redis://host/x", "redis://host/-1", "redis://[::1",
        "redis://[::1]x", "unix://relative"}) {
    const auto parsed = ParseRedisUrl(url);
    ASSERT_EQ(parsed.status().code(), StatusCode::kInvalid) << url;
    EXPECT_THAT(parsed.status().message(), HasSubstr("redis://[user@]host[:port]")) << url;
  }
}

TEST_F(RedisConfigTest, APasswordInTheUrlIsRefusedAndNotRepeated) {
  for (const char* url : {"redis://user:s3cret@host", "redis://:s3cret@host:6379/0",
                          "rediss://user:s3cret@host", "redis://host/0?password=s3cret"}) {
    const auto parsed = ParseRedisUrl(url);
    ASSERT_EQ(parsed.status().code(), StatusCode::kInvalid) << url;
    EXPECT_THAT(parsed.status().message(), Not(HasSubstr("s3cret")));
  }
  EXPECT_THAT(ParseRedisUrl("redis://u:s3cret@host").status().message(),
              HasSubstr("EMBERCACHE_REDIS_PASSWORD"));
}

TEST_F(RedisConfigTest, DefaultsReachALocalServer) {
  const auto config = RedisConfig::Parse("{}");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->endpoint.ToString(), "127.0.0.1:6379");
  EXPECT_EQ(config->database, 0);
  EXPECT_EQ(config->ttl, Duration(0));
  EXPECT_TRUE(config->password.empty());
}

TEST_F(RedisConfigTest, OptionsAreRead) {
  const auto config = RedisConfig::Parse(
      R"({"url":"redis://h","database":2,"ttl":"24h","max_value_bytes":"64MiB","connections":2})");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->database, 2);
  EXPECT_EQ(config->ttl, std::chrono::hours(24));
  EXPECT_EQ(config->max_value_bytes, 64ULL << 20);
  EXPECT_EQ(config->connections, 2);
}

TEST_F(RedisConfigTest, CredentialsComeFromTheEnvironmentOrAFile) {
  setenv("EMBERCACHE_REDIS_USERNAME", "from_environment", 1);
  setenv("EMBERCACHE_REDIS_PASSWORD", "secret1", 1);
  const auto environment = RedisConfig::Parse("{}");
  ASSERT_TRUE(environment.ok());
  EXPECT_EQ(environment->username, "from_environment");
  EXPECT_EQ(environment->password, "secret1");

  const std::string file = Write("password", "secret2\r\nnot this\n");
  const auto config =
      RedisConfig::Parse(R"({"url":"redis://cache@h","password_file":")" + file + R"("})");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->username, "cache");
  EXPECT_EQ(config->password, "secret2");
}

TEST_F(RedisConfigTest, WrongOptionsNameThemselves) {
  EXPECT_THAT(Message(R"({"urll":"redis://h"})"), HasSubstr("urll"));
  EXPECT_THAT(Message(R"({"password":"x"})"), HasSubstr("password_file"));
  EXPECT_THAT(Message(R"({"connections":9})"), HasSubstr("connections"));
  EXPECT_THAT(Message(R"({"ttl":"1ms"})"), HasSubstr("ttl"));
  EXPECT_THAT(Message(R"({"max_value_bytes":0})"), HasSubstr("max_value_bytes"));
  EXPECT_THAT(Message(R"({"username":"u"})"), HasSubstr("EMBERCACHE_REDIS_PASSWORD"));
  EXPECT_THAT(Message(R"({"password_file":"/no/such/file"})"), HasSubstr("/no/such/file"));
  EXPECT_THAT(Message(R"({"password_file":")" + Write("empty", "") + R"("})"),
              HasSubstr("first line"));
  EXPECT_THAT(Message(R"({"url":"redis://h/1","database":2})"), HasSubstr("database"));
  EXPECT_THAT(Message(R"({"url":"redis://h","ca_file":"/ca.pem"})"), HasSubstr("rediss://"));
  EXPECT_THAT(Message(R"({"url":"rediss://h","ca_file":"/no/ca.pem"})"), HasSubstr("/no/ca.pem"));
  EXPECT_THAT(Message(R"({"url":"rediss://h","cert_file":"/c.pem"})"), HasSubstr("key_file"));
}

}  // namespace
}  // namespace embercache::redis
