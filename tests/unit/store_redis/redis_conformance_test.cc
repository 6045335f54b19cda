// The conformance suite on real servers.

#include <fmt/format.h>

#include <memory>

#include "embercache/store_factory.h"
#include "tests/conformance/conformance_gtest.h"
#include "tests/unit/store_redis/test_server.h"

namespace embercache {
namespace {

constexpr uint64_t kMaxObjectBytes = 64ULL << 20;

StoreUnderTest StoreOn(std::shared_ptr<redis::TestServer> server, std::string url) {
  StoreUnderTest store;
  store.name = "redis";
  store.open = [server, url]() -> Result<std::unique_ptr<EmbeddingStore>> {
    EmbeddingStoreFactory factory;
    RegisterBuiltinBackends(factory);
    StoreConfig config;
    config.json = fmt::format(R"({{"url":"{}","max_value_bytes":{}}})", url, kMaxObjectBytes);
    return factory.CreateBackend("redis", config);
  };
  store.traits.shared = true;
  store.traits.max_object_bytes = kMaxObjectBytes;
  store.leftovers = [server] { return fmt::format("{}", fmt::join(server->Keys(), " ")); };
  return store;
}

StoreUnderTest OnRedis() {
  auto server = std::make_shared<redis::TestServer>();
  return StoreOn(server, server->url());
}

StoreUnderTest OnValkeySocket() {
  auto server = std::make_shared<redis::TestServer>(
      redis::TestServer::Options{.software = redis::Software::kValkey, .arguments = {}});
  return StoreOn(server, server->unix_url());
}

INSTANTIATE_TEST_SUITE_P(Redis, StoreConformanceTest, ConformanceOf("redis", OnRedis),
                         ConformanceTestName);
INSTANTIATE_TEST_SUITE_P(Valkey, StoreConformanceTest, ConformanceOf("valkey", OnValkeySocket),
                         ConformanceTestName);

}  // namespace
}  // namespace embercache
