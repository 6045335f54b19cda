// The conformance suite on the example plugin, and on one whose batches end on other threads.

#include <memory>
#include <string>

#include "embercache/store_factory.h"
#include "tests/conformance/conformance_gtest.h"

namespace embercache {
namespace {

StoreUnderTest PluginUnderTest(const std::string& name) {
  StoreUnderTest plugin;
  plugin.name = name;
  plugin.open = [name] {
    EmbeddingStoreFactory factory;
    RegisterBuiltinBackends(factory);
    StoreConfig config;
    config.json = R"({"path":")" EMBERCACHE_TEST_PLUGINS "/" + name + R"(.so"})";
    return factory.CreateBackend("plugin", config);
  };
  return plugin;
}

INSTANTIATE_TEST_SUITE_P(Example, StoreConformanceTest,
                         ConformanceOf("plugin", [] { return PluginUnderTest("memory_plugin"); }),
                         ConformanceTestName);
INSTANTIATE_TEST_SUITE_P(Late, StoreConformanceTest,
                         ConformanceOf("plugin", [] { return PluginUnderTest("late_plugin"); }),
                         ConformanceTestName);

}  // namespace
}  // namespace embercache
