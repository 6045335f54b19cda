// The C library in this process: what a bridge process would protect from is not, and what can be
// is.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "src/store/mooncake/mooncake_store.h"
#include "tests/conformance/conformance_gtest.h"
#include "tests/conformance/payload.h"
#include "tests/conformance/temp_folder.h"
#include "tests/support/wait_until.h"
#include "tests/unit/store_mooncake/mooncake_under_test.h"

namespace embercache {
namespace {

Result<std::unique_ptr<EmbeddingStore>> OpenInProcess(const std::string& folder,
                                                      const std::string& timeout = "45s") {
  setenv("FAKE_MOONCAKE_DIR", folder.c_str(), 1);
  StoreConfig config;
  config.json = nlohmann::json{
      {"bridge", "in_process"},
      {"library", FAKE_LIBRARY},
      {"bridge_timeout",
       timeout}}.dump();
  EMBERCACHE_ASSIGN_OR_RETURN(auto store, CreateMooncakeStore(config));
  if (!WaitUntil([&] { return store->Health().state == StoreState::kUp; })) {
    return Status::Unavailable(store->Health().detail);
  }
  return store;
}

StoreUnderTest MakeInProcess() {
  const auto folder = std::make_shared<TempFolder>();
  return MooncakeUnderTest([folder] { return OpenInProcess(folder->path()); });
}

INSTANTIATE_TEST_SUITE_P(FakeMooncakeInProcess, StoreConformanceTest,
                         ConformanceOf("in_process", MakeInProcess), ConformanceTestName);

class MooncakeInProcessTest : public testing::Test {
 protected:
  void Tell(const std::string& op, nlohmann::json fault) {
    fault["times"] = 1;
    std::ofstream(folder_.path() + "/fault." + op) << fault.dump();
  }
  static bool Hits(EmbeddingStore& store, const std::string& key) {
    Bytes got;
    return GetOne(store, key, 5000, &got).outcome == GetOutcome::kHit &&
           got == PayloadOf(key, 5000);
  }

  TempFolder folder_;
};

TEST_F(MooncakeInProcessTest, ItSaysThatItIsInThisProcess) {
  auto store = OpenInProcess(folder_.path());
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  const auto description = nlohmann::json::parse((*store)->DescribeJson());
  EXPECT_EQ(description["bridge"], "in_process");
  EXPECT_EQ(description["bridge_pid"], -1);
}

TEST_F(MooncakeInProcessTest, ATransferOfUnknownOutcomeReplacesTheClient) {
  auto store = OpenInProcess(folder_.path());
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  ASSERT_EQ(PutOne(**store, "key", PayloadOf("key", 5000)).outcome, PutOutcome::kAccepted);
  Tell("get", {{"kind", "code"}, {"code", -800}});
  Bytes got;
  EXPECT_EQ(GetOne(**store, "key", 5000, &got).status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(WaitUntil([&] { return Hits(**store, "key"); })) << (*store)->Health().detail;
  EXPECT_EQ(nlohmann::json::parse((*store)->DescribeJson())["bridge_starts"], 2);
}

TEST_F(MooncakeInProcessTest, ACallThatHangsKeepsItsBuffersAndOthersAreAnsweredAtOnce) {
  auto store = OpenInProcess(folder_.path(), "1s");
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  Tell("get", {{"kind", "slow"}, {"seconds", 3}});
  Status hung;
  std::thread caller([&] {
    Bytes got;
    hung = GetOne(**store, "key", 5000, &got).status;
  });
  EXPECT_TRUE(WaitUntil([&] { return (*store)->Health().state == StoreState::kDown; }));
  Bytes got;
  EXPECT_EQ(GetOne(**store, "key", 5000, &got).status.code(), StatusCode::kUnavailable);
  EXPECT_EQ((*store)->Close(SteadyClock().Now()).code(), StatusCode::kDeadlineExceeded);
  caller.join();
  EXPECT_FALSE(hung.ok());
}

TEST_F(MooncakeInProcessTest, AClientThatDoesNotEndIsLeftBehind) {
  auto store = OpenInProcess(folder_.path());
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  Tell("destroy", {{"kind", "hang"}});
  EXPECT_EQ((*store)->Close(SteadyClock().Now()).code(), StatusCode::kDeadlineExceeded);
  store->reset();
}

}  // namespace
}  // namespace embercache
