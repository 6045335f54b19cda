// The conformance suite on real servers.

#include <fmt/format.h>

#include <memory>

#include "embercache/store_factory.h"
#include "tests/conformance/conformance_gtest.h"
#include "tests/unit/store_redis/test_server.h"

namespace embercache {
namespace {

constexpr uint64_t kMaxObjectBytes = 64ULL << 20;

template <typename Servers>
StoreUnderTest StoreOn(std::shared_ptr<Servers> servers, std::string url) {
  StoreUnderTest store;
  store.name = "redis";
  store.open = [servers, url]() -> Result<std::unique_ptr<EmbeddingStore>> {
    EmbeddingStoreFactory factory;
    RegisterBuiltinBackends(factory);
    StoreConfig config;
    config.json = fmt::format(R"({{"url":"{}","max_value_bytes":{}}})", url, kMaxObjectBytes);
    return factory.CreateBackend("redis", config);
  };
  store.traits.shared = true;
  store.traits.max_object_bytes = kMaxObjectBytes;
  store.leftovers = [servers] { return fmt::format("{}", fmt::join(servers->Keys(), " ")); };
  return store;
}

StoreUnderTest OnRedis() {
  auto server = std::make_shared<redis::TestServer>();
  return StoreOn(server, server->url());
}

StoreUnderTest OnValkeySocket() {
  auto server = std::make_shared<redis::TestServer>(
      redis::TestServer::Options{.software = redis::Software::kValkey});
  return StoreOn(server, server->unix_url());
}

StoreUnderTest OnACluster() {
  auto cluster = std::make_shared<redis::TestCluster>();
  return StoreOn(cluster, cluster->server(0).url());
}

INSTANTIATE_TEST_SUITE_P(Redis, StoreConformanceTest, ConformanceOf("redis", OnRedis),
                         ConformanceTestName);
INSTANTIATE_TEST_SUITE_P(Valkey, StoreConformanceTest, ConformanceOf("valkey", OnValkeySocket),
                         ConformanceTestName);
// In one test, since a Cluster takes seconds to start.
TEST(RedisClusterConformanceTest, AClusterConforms) {
  const StoreUnderTest cluster = OnACluster();
  for (const ConformanceCheck& check : ConformanceChecks()) {
    for (const std::string& failure : RunConformanceCheck(check, cluster).failures) {
      ADD_FAILURE() << check.name << ": " << failure;
    }
  }
}

}  // namespace
}  // namespace embercache
