#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>

#include "embercache/store_factory.h"
#include "src/base/log.h"
#include "src/store/memory/memory_store.h"

namespace embercache {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;

TEST(StoreFactoryTest, MakesABackendByItsName) {
  EmbeddingStoreFactory factory;
  factory.RegisterBackend("mine", CreateMemoryStore);
  const auto store = factory.CreateBackend("mine", {});
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  EXPECT_EQ((*store)->name(), "memory");
}

TEST(StoreFactoryTest, AnUnknownNameListsThoseThereAre) {
  EmbeddingStoreFactory factory;
  factory.RegisterBackend("b", CreateMemoryStore);
  factory.RegisterBackend("a", CreateMemoryStore);
  const auto store = factory.CreateBackend("c", {});
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), StatusCode::kInvalid);
  EXPECT_EQ(store.status().message(), "store backend 'c' is unknown; there are: a, b");
}

TEST(StoreFactoryTest, ANameRegisteredAgainIsReplacedWithAWarning) {
  EmbeddingStoreFactory factory;
  std::ostringstream captured;
  const auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(captured);
  Log().sinks().push_back(sink);
  factory.RegisterBackend("mine",
                          [](const StoreConfig&) -> Result<std::unique_ptr<EmbeddingStore>> {
                            return Status::Unavailable("the old one");
                          });
  EXPECT_EQ(captured.str(), "");
  factory.RegisterBackend("mine", CreateMemoryStore);
  Log().sinks().pop_back();
  EXPECT_THAT(captured.str(), HasSubstr("'mine' is registered again"));
  EXPECT_TRUE(factory.CreateBackend("mine", {}).ok());
  EXPECT_THAT(factory.BackendNames(), ElementsAre("mine"));
}

TEST(StoreFactoryTest, ACreatorThatThrowsIsAnErrorThatNamesTheBackend) {
  EmbeddingStoreFactory factory;
  factory.RegisterBackend("bad", [](const StoreConfig&) -> Result<std::unique_ptr<EmbeddingStore>> {
    throw std::runtime_error("out of luck");
  });
  factory.RegisterBackend(
      "worse", [](const StoreConfig&) -> Result<std::unique_ptr<EmbeddingStore>> { throw 42; });
  EXPECT_EQ(factory.CreateBackend("bad", {}).status().ToString(),
            "INTERNAL: store backend 'bad' threw: out of luck");
  EXPECT_EQ(factory.CreateBackend("worse", {}).status().code(), StatusCode::kInternal);
}

TEST(StoreFactoryTest, TheBuiltInsAreThere) {
  EmbeddingStoreFactory factory;
  RegisterBuiltinBackends(factory);
  EXPECT_THAT(factory.BackendNames(), IsSupersetOf({"file", "memory"}));
}

TEST(StoreFactoryTest, AnUnknownOptionListsTheKnownOnes) {
  EmbeddingStoreFactory factory;
  RegisterBuiltinBackends(factory);
  StoreConfig config;
  config.json = R"({"max_byte":"1GiB"})";
  const auto store = factory.CreateBackend("memory", config);
  EXPECT_EQ(store.status().ToString(),
            "INVALID: store backend 'memory' has no option 'max_byte'; there are: max_bytes");
}

}  // namespace
}  // namespace embercache
