#include "src/store/plugin/plugin_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/conformance/payload.h"
#include "tests/conformance/temp_folder.h"

namespace embercache {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Result<std::unique_ptr<EmbeddingStore>> OpenPlugin(const nlohmann::json& options) {
  StoreConfig config;
  config.json = options.dump();
  return CreatePluginStore(config);
}

std::string PluginPath(const std::string& name) {
  return std::string(EMBERCACHE_TEST_PLUGINS) + "/" + name + ".so";
}

// Why the plugin does not open.
Status ErrorOf(const std::string& path) {
  const auto store = OpenPlugin({{"path", path}});
  EXPECT_FALSE(store.ok()) << path;
  EXPECT_THAT(store.status().message(), HasSubstr("'" + path + "'"));
  return store.status();
}

TEST(PluginStoreTest, ThePathIsNeeded) {
  EXPECT_THAT(OpenPlugin({}).status().message(), HasSubstr("JSON object"));
  EXPECT_THAT(OpenPlugin(nlohmann::json::object()).status().message(),
              HasSubstr("needs the option 'path'"));
  EXPECT_THAT(OpenPlugin({{"path", "x"}, {"conf", 1}}).status().message(),
              HasSubstr("there are: config, path"));
}

TEST(PluginStoreTest, AFileThatIsNotThereDoesNotLoad) {
  EXPECT_THAT(ErrorOf("/nowhere/plugin.so").message(),
              AllOf(HasSubstr("does not load"), HasSubstr("No such file")));
}

TEST(PluginStoreTest, AFileThatIsNoSharedObjectDoesNotLoad) {
  const TempFolder folder;
  const std::string path = folder.path() + "/plugin.so";
  std::ofstream(path) << std::string(1000, 'x');
  EXPECT_THAT(ErrorOf(path).message(),
              AllOf(HasSubstr("does not load"), HasSubstr("invalid ELF header")));
}

TEST(PluginStoreTest, ASharedObjectWithoutTheEntryPointIsNoPlugin) {
  EXPECT_THAT(ErrorOf(PluginPath("no_entry_point")).message(),
              HasSubstr("does not export the function embercache_store_plugin"));
}

TEST(PluginStoreTest, APluginOfAnotherAbiVersionIsRefused) {
  EXPECT_THAT(ErrorOf(PluginPath("other_version")).message(),
              HasSubstr("has ABI version 2, this build takes 1"));
}

TEST(PluginStoreTest, APluginThatLacksATableOrAFunctionIsRefused) {
  EXPECT_THAT(ErrorOf(PluginPath("no_table")).message(), HasSubstr("returns no table"));
  EXPECT_THAT(ErrorOf(PluginPath("short_table")).message(), HasSubstr("has a table of 24 bytes"));
  EXPECT_THAT(ErrorOf(PluginPath("no_get")).message(), HasSubstr("has no function 'get'"));
}

TEST(PluginStoreTest, WhyAPluginDoesNotOpenIsPassedOn) {
  const Status status = ErrorOf(PluginPath("open_fails"));
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("no such cluster"));
  EXPECT_EQ(ErrorOf(PluginPath("opens_nothing")).code(), StatusCode::kInternal);
}

TEST(PluginStoreTest, ItsConfigReachesThePlugin) {
  const auto store = OpenPlugin({{"path", PluginPath("memory_plugin")}, {"config", {{"a", 1}}}});
  EXPECT_EQ(store.status().code(), StatusCode::kInvalid);
  EXPECT_THAT(store.status().message(), HasSubstr(R"({"a":1})"));
}

TEST(PluginStoreTest, WhatAPluginCannotAnswerIsItsFailure) {
  const auto store = *OpenPlugin({{"path", PluginPath("lies")}});
  Bytes got;
  const GetResult get = GetOne(*store, "k", 100, &got);
  EXPECT_EQ(get.outcome, GetOutcome::kFailed);
  EXPECT_EQ(get.status.message(), "the plugin's get says it filled 50 bytes of 100");
  const PutResult put = PutOne(*store, "k", PayloadOf("k", 10));
  EXPECT_EQ(put.outcome, PutOutcome::kFailed);
  EXPECT_THAT(put.status.message(), HasSubstr("outcome 77"));
  const StatResult stat = StatOne(*store, "k");
  EXPECT_EQ(stat.status.code(), StatusCode::kInternal);
  EXPECT_EQ(stat.status.message(), std::string(160, 'm'));
  EXPECT_EQ(RemoveOne(*store, "k").status.code(), StatusCode::kInternal);
}

TEST(PluginStoreTest, WhatAPluginNeedNotHaveHasDefaults) {
  const auto store = *OpenPlugin({{"path", PluginPath("lies")}});
  EXPECT_EQ(store->List("", 10, {}).status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(store->Health().state, StoreState::kUp);
  EXPECT_TRUE(store->RegisterBuffer({}).ok());
  EXPECT_EQ(StatOne(*store, "k").version, std::nullopt);
}

TEST(PluginStoreTest, HealthIsThePlugins) {
  const auto store = *OpenPlugin({{"path", PluginPath("memory_plugin")}});
  PutOne(*store, "k", PayloadOf("k", 10));
  EXPECT_EQ(store->Health().detail, "1 objects in memory");
}

}  // namespace
}  // namespace embercache
