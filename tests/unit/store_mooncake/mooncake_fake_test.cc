// What a Mooncake client can do to us, by those that do as they are told: fake/mooncake/store.py by
// the wheel, fake/fake_store_library.cc by the C ABI.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "src/store/mooncake/mooncake_store.h"
#include "tests/conformance/conformance_gtest.h"
#include "tests/conformance/payload.h"
#include "tests/conformance/temp_folder.h"
#include "tests/support/wait_until.h"
#include "tests/unit/store_mooncake/mooncake_under_test.h"
#include "tests/unit/store_mooncake/shared_memory.h"

namespace embercache {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr Duration kPatience = seconds(60);

Result<std::unique_ptr<EmbeddingStore>> OpenFake(const std::string& way, const std::string& folder,
                                                 const std::string& options = "") {
  setenv("FAKE_MOONCAKE_DIR", folder.c_str(), 1);
  setenv("PYTHONPATH", FAKE_MOONCAKE, 1);
  setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
  auto json = nlohmann::json::parse("{" + (options.empty() ? "" : options.substr(1)) + "}");
  const nlohmann::json defaults = {
      {"bridge", way}, {"python", "/usr/bin/python3"}, {"library", FAKE_LIBRARY}};
  json.insert(defaults.begin(), defaults.end());
  StoreConfig config;
  config.json = json.dump();
  return CreateMooncakeStore(config);
}

bool WaitForState(EmbeddingStore& store, StoreState state) {
  return WaitUntil([&] { return store.Health().state == state; });
}

StoreUnderTest MakeFake(const std::string& way) {
  const auto folder = std::make_shared<TempFolder>();
  return MooncakeUnderTest([way, folder]() -> Result<std::unique_ptr<EmbeddingStore>> {
    EMBERCACHE_ASSIGN_OR_RETURN(auto store, OpenFake(way, folder->path()));
    if (!WaitForState(*store, StoreState::kUp)) return Status::Unavailable("it does not come up");
    return store;
  });
}

INSTANTIATE_TEST_SUITE_P(FakeMooncake, StoreConformanceTest,
                         ConformanceOf("wheel", [] { return MakeFake("wheel"); }),
                         ConformanceTestName);
INSTANTIATE_TEST_SUITE_P(FakeMooncakeLibrary, StoreConformanceTest,
                         ConformanceOf("library", [] { return MakeFake("library"); }),
                         ConformanceTestName);

class MooncakeFakeTest : public testing::TestWithParam<const char*> {
 protected:
  void Open(const std::string& options = "") {
    auto opened = OpenFake(GetParam(), folder_.path(), options);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    store_ = std::move(*opened);
  }
  void OpenUp(const std::string& options = "") {
    ASSERT_NO_FATAL_FAILURE(Open(options));
    ASSERT_TRUE(WaitForState(*store_, StoreState::kUp)) << store_->Health().detail;
  }
  // The next `times` calls of the operation are struck.
  void Tell(const std::string& op, nlohmann::json fault, int times = 1) {
    fault["times"] = times;
    const std::string path = folder_.path() + "/fault." + op;
    std::ofstream(path + ".told") << fault.dump();
    std::rename((path + ".told").c_str(), path.c_str());
  }
  bool IsStruck(const std::string& op) {
    return !std::ifstream(folder_.path() + "/fault." + op).good();
  }
  static nlohmann::json Code(int code) { return {{"kind", "code"}, {"code", code}}; }
  static nlohmann::json Kind(const char* kind) { return {{"kind", kind}}; }

  nlohmann::json Description() { return nlohmann::json::parse(store_->DescribeJson()); }
  uint64_t Starts() { return Description()["bridge_starts"]; }
  pid_t BridgePid() { return Description()["bridge_pid"]; }

  GetResult Get(const std::string& key, size_t bytes = 5000) {
    return GetOne(*store_, key, bytes, &got_);
  }
  void Put(const std::string& key, size_t bytes = 5000) {
    const PutResult put = PutOne(*store_, key, PayloadOf(key, bytes));
    ASSERT_EQ(put.outcome, PutOutcome::kAccepted) << put.status.ToString();
  }
  void ExpectHit(const std::string& key, size_t bytes = 5000) {
    const GetResult get = Get(key, bytes);
    EXPECT_EQ(get.outcome, GetOutcome::kHit) << get.status.ToString();
    EXPECT_EQ(got_, PayloadOf(key, bytes));
  }
  // After a fault: a new client serves what was there before.
  void ExpectRecovery(uint64_t starts_before, uint64_t era_before, const std::string& key) {
    ASSERT_TRUE(WaitUntil([&] {
      return Starts() > starts_before && store_->Health().state == StoreState::kUp;
    })) << store_->Health().detail;
    EXPECT_NE(Era(), era_before);
    ExpectHit(key);
  }
  uint64_t Era() { return store_->Era(); }

  TempFolder folder_;
  std::unique_ptr<EmbeddingStore> store_;
  Bytes got_;
};

INSTANTIATE_TEST_SUITE_P(By, MooncakeFakeTest, testing::Values("wheel", "library"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(MooncakeFakeTest, ClientsOwnNoSegmentAndGetTheConfiguration) {
  const bool wheel = GetParam() == std::string("wheel");
  const std::string tenant = wheel ? R"(,"tenant_id":"blue")" : "";
  OpenUp(R"(,"master_server_address":"127.0.0.1:7","device_name":"d0")" + tenant);
  std::ifstream file(folder_.path() + "/setup.json");
  const auto [arguments, named] =
      nlohmann::json::parse(file).get<std::pair<nlohmann::json, nlohmann::json>>();
  EXPECT_EQ(arguments,
            nlohmann::json({"127.0.0.1", "P2PHANDSHAKE", 0, 64 << 20, "tcp", "d0", "127.0.0.1:7"}));
  if (wheel) {
    EXPECT_EQ(named["tenant_id"], "blue");
  }
  EXPECT_EQ(Description()["bridge"], GetParam());
  EXPECT_EQ(Description()["protocol"], "tcp");
}

TEST_P(MooncakeFakeTest, WhatVanishesAfterItWasSeenIsAMiss) {
  OpenUp();
  Put("key");
  Tell("exist", Kind("vanish"));
  const std::string_view key = "key";
  EXPECT_TRUE(store_->BatchIsExist({&key, 1}, {}).at(0).found);
  EXPECT_EQ(Get("key").outcome, GetOutcome::kMiss);
  EXPECT_EQ(Starts(), 1U);
}

TEST_P(MooncakeFakeTest, APutThatAnswersZeroWithoutStoringIsAcceptedAndALaterMiss) {
  OpenUp();
  Tell("put", Code(0));
  Put("lost");
  EXPECT_EQ(Get("lost").outcome, GetOutcome::kMiss);
}

TEST_P(MooncakeFakeTest, WhatIsBeingWrittenIsAMiss) {
  OpenUp();
  Put("key");
  Tell("get", Code(-703));
  EXPECT_EQ(Get("key").outcome, GetOutcome::kMiss);
  ExpectHit("key");
}

TEST_P(MooncakeFakeTest, ALeaseThatRunsOutCostsASecondTransferAndThenTheHit) {
  OpenUp();
  Put("key");
  Tell("get", Code(-707));
  ExpectHit("key");
  Tell("get", Code(-707), 2);
  const GetResult get = Get("key");
  EXPECT_EQ(get.outcome, GetOutcome::kFailed);
  EXPECT_EQ(get.status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(Starts(), 1U);
}

TEST_P(MooncakeFakeTest, APutWithoutRoomIsTriedAgainAndThenDropped) {
  OpenUp();
  Tell("put", Code(-200));
  Put("key");
  Tell("put", Code(-200), 1000);
  const PutResult put = PutOne(*store_, "other", PayloadOf("other", 100));
  EXPECT_EQ(put.outcome, PutOutcome::kFailed);
  EXPECT_EQ(put.status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Starts(), 1U);
}

TEST_P(MooncakeFakeTest, AnotherSizeIsToldAndCostsNoClient) {
  OpenUp();
  Put("key");
  for (const size_t bytes : {4999U, 5001U}) {
    const GetResult get = Get("key", bytes);
    EXPECT_EQ(get.outcome, GetOutcome::kWrongSize) << get.status.ToString();
    EXPECT_EQ(get.bytes, 5000U);
  }
  EXPECT_EQ(Starts(), 1U);
}

TEST_P(MooncakeFakeTest, ARefusalOfTheRightSizeIsAFaultOfOurs) {
  OpenUp();
  Put("key");
  Tell("get", Code(-600));
  EXPECT_EQ(Get("key").status.code(), StatusCode::kInternal);
}

TEST_P(MooncakeFakeTest, AResultListThatIsTooShortFailsTheBatch) {
  OpenUp();
  Put("key");
  for (const char* op : {"get", "put"}) {
    const uint64_t starts = Starts();
    const uint64_t era = Era();
    Tell(op, Kind("short"));
    const Status status = op == std::string("get") ? Get("key").status
                                                   : PutOne(*store_, "b", PayloadOf("b", 9)).status;
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    const bool wheel = GetParam() == std::string("wheel");
    EXPECT_THAT(status.message(), HasSubstr(wheel ? "0 of 1" : "not a code"));
    ExpectRecovery(starts, era, "key");
  }
}

TEST_P(MooncakeFakeTest, TransfersWithUnknownOutcomeFailAndReplaceTheClient) {
  OpenUp();
  Put("key");
  for (const int code : {-800, -900, -901, -1, 7777777}) {
    const uint64_t starts = Starts();
    const uint64_t era = Era();
    Tell("put", Code(code == 7777777 ? -7777777 : code));
    const PutResult put = PutOne(*store_, "other", PayloadOf("other", 100));
    EXPECT_EQ(put.outcome, PutOutcome::kFailed);
    EXPECT_EQ(put.status.code(), StatusCode::kUnavailable);
    ExpectRecovery(starts, era, "key");
  }
}

TEST_P(MooncakeFakeTest, ACrashCostsMissesOnly) {
  OpenUp();
  Put("key");
  for (const char* kind : {"crash", "raise"}) {
    const uint64_t starts = Starts();
    const uint64_t era = Era();
    Tell("get", Kind(kind));
    EXPECT_EQ(Get("key").status.code(), StatusCode::kUnavailable);
    ExpectRecovery(starts, era, "key");
  }
}

TEST_P(MooncakeFakeTest, ABridgeThatIsKilledWhileItIsIdleIsReplaced) {
  OpenUp();
  Put("key");
  const uint64_t era = Era();
  kill(BridgePid(), SIGKILL);
  ExpectRecovery(1, era, "key");
}

TEST_P(MooncakeFakeTest, ABridgeThatHangsIsKilledAtItsDeadline) {
  OpenUp(R"(,"bridge_timeout":"1s")");
  Put("key");
  const uint64_t era = Era();
  Tell("get", Kind("hang"));
  EXPECT_EQ(Get("key").status.code(), StatusCode::kUnavailable);
  ExpectRecovery(1, era, "key");
}

TEST_P(MooncakeFakeTest, ABridgeThatIsFrozenIsKilledAtItsDeadline) {
  OpenUp(R"(,"bridge_timeout":"1s")");
  Put("key");
  const uint64_t era = Era();
  const pid_t pid = BridgePid();
  kill(pid, SIGSTOP);
  ASSERT_EQ(waitpid(pid, nullptr, WUNTRACED), pid);
  EXPECT_EQ(Get("key").status.code(), StatusCode::kUnavailable);
  ExpectRecovery(1, era, "key");
}

TEST_P(MooncakeFakeTest, CallsHavingNoBridgeAreAnsweredAtOnce) {
  Tell("setup", Kind("hang"));
  Open();
  EXPECT_EQ(store_->Health().state, StoreState::kStarting);
  EXPECT_EQ(Get("key").status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(StatOne(*store_, "key").status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(RemoveOne(*store_, "key").status.code(), StatusCode::kUnavailable);
  // Closing does not wait for the set-up.
  EXPECT_TRUE(store_->Close(SteadyClock().Now() + kPatience).ok());
  EXPECT_EQ(store_->Health().state, StoreState::kDown);
}

TEST_P(MooncakeFakeTest, BytesThatAClientWritesLateNeverReachMemoryThatWasGivenBack) {
  OpenUp();
  SharedMemory memory(1 << 20);
  ASSERT_TRUE(store_->RegisterBuffer(memory.region()).ok());
  Put("key");
  // Until the region is mapped, the bounce area takes the bytes, and the test would say nothing.
  std::this_thread::sleep_for(milliseconds(300));
  Tell("get", Kind("late"));
  const MutableBuffer buffer = memory.memory().subspan(4096, 5000);
  const GetItem item{"key", {&buffer, 1}};
  EXPECT_EQ(store_->BatchGetIntoMultiBuffers({&item, 1}, {}).at(0).outcome, GetOutcome::kFailed);
  std::fill(buffer.begin(), buffer.end(), std::byte(0x11));
  std::this_thread::sleep_for(seconds(1));
  EXPECT_TRUE(std::all_of(buffer.begin(), buffer.end(),
                          [](std::byte byte) { return byte == std::byte(0x11); }));
}

TEST_P(MooncakeFakeTest, RegisteredMemoryIsTransferredInPlace) {
  OpenUp();
  // More than the bounce area holds.
  constexpr size_t kBytes = 80 << 20;
  SharedMemory memory(2 * kBytes);
  const MutableBuffer from = memory.memory().first(kBytes);
  const Bytes payload = PayloadOf("large", kBytes);
  std::copy(payload.begin(), payload.end(), from.begin());
  const ConstBuffer source = from;
  const PutItem put{"large", {&source, 1}, PutMode::kIfAbsent};
  EXPECT_EQ(store_->BatchPutFromMultiBuffers({&put, 1}, {}).at(0).status.code(),
            StatusCode::kResourceExhausted);
  ASSERT_TRUE(store_->RegisterBuffer(memory.region()).ok());
  ASSERT_TRUE(WaitUntil([&] {
    return store_->BatchPutFromMultiBuffers({&put, 1}, {}).at(0).outcome == PutOutcome::kAccepted;
  }));
  const MutableBuffer targets[] = {memory.memory().subspan(kBytes, 4096),
                                   memory.memory().subspan(kBytes + 4096)};
  const GetItem get{"large", targets};
  EXPECT_EQ(store_->BatchGetIntoMultiBuffers({&get, 1}, {}).at(0).outcome, GetOutcome::kHit);
  EXPECT_TRUE(std::equal(payload.begin(), payload.end(), targets[0].data()));
}

TEST_P(MooncakeFakeTest, ABatchLargerThanTheBounceAreaGoesThroughItInParts) {
  OpenUp();
  const Bytes bytes = PayloadOf("part", 17 << 20);
  const ConstBuffer source = bytes;
  const std::vector<std::string> keys = {"a", "b", "c", "d"};
  std::vector<PutItem> puts;
  for (const std::string& key : keys) puts.push_back({key, {&source, 1}, PutMode::kIfAbsent});
  for (const PutResult& put : store_->BatchPutFromMultiBuffers(puts, {})) {
    EXPECT_EQ(put.outcome, PutOutcome::kAccepted) << put.status.ToString();
  }
  std::vector<Bytes> targets(keys.size(), Bytes(bytes.size()));
  std::vector<MutableBuffer> buffers(targets.begin(), targets.end());
  std::vector<GetItem> gets;
  for (size_t i = 0; i < keys.size(); ++i) gets.push_back({keys[i], {&buffers[i], 1}});
  for (const GetResult& get : store_->BatchGetIntoMultiBuffers(gets, {})) {
    EXPECT_EQ(get.outcome, GetOutcome::kHit) << get.status.ToString();
  }
  EXPECT_EQ(targets.back(), bytes);
}

TEST_P(MooncakeFakeTest, ObjectsThatTheBounceAreaNeverHoldsAreRefusedAtOnce) {
  OpenUp();
  const Bytes bytes((64 << 20) + 1);
  EXPECT_EQ(PutOne(*store_, "key", std::span(bytes).first(64 << 20)).outcome,
            PutOutcome::kAccepted);
  EXPECT_EQ(PutOne(*store_, "other", bytes).status.code(), StatusCode::kResourceExhausted);
}

TEST_P(MooncakeFakeTest, MemoryThatComesAgainAtAnAddressIsNotTakenForTheOld) {
  OpenUp();
  Put("key");
  auto memory = std::make_unique<SharedMemory>(1 << 20);
  void* const address = memory->memory().data();
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(store_->RegisterBuffer(memory->region()).ok());
    const MutableBuffer buffer = memory->memory().first(5000);
    const GetItem item{"key", {&buffer, 1}};
    ASSERT_EQ(store_->BatchGetIntoMultiBuffers({&item, 1}, {}).at(0).outcome, GetOutcome::kHit);
    ASSERT_TRUE(std::equal(buffer.begin(), buffer.end(), PayloadOf("key", 5000).begin()));
    ASSERT_TRUE(store_->UnregisterBuffer(memory->region()).ok());
    memory.reset();
    memory = std::make_unique<SharedMemory>(1 << 20, address);
  }
}

TEST_P(MooncakeFakeTest, PutsOfOneKeyFollowEachOther) {
  OpenUp();
  // The fake answers -600 to the second of two at once.
  Tell("put_one", {{"kind", "slow"}, {"seconds", 0.3}}, 2);
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([this] {
      const PutResult put = PutOne(*store_, "key", PayloadOf("key", 5000));
      EXPECT_EQ(put.outcome, PutOutcome::kAccepted) << put.status.ToString();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(MooncakeFakeTest, ARemovalWaitsForTheLeaseAsLongAsTheCallMay) {
  OpenUp();
  Put("key");
  Tell("remove", Code(-706), 3);
  EXPECT_EQ(RemoveOne(*store_, "key").outcome, RemoveOutcome::kRemoved);
  Put("key");
  Tell("remove", Code(-706), 1000);
  CallContext context;
  context.deadline = SteadyClock().Now() + milliseconds(300);
  const RemoveItem item{"key", {}};
  const RemoveResult removed = store_->BatchRemove({&item, 1}, context).at(0);
  EXPECT_EQ(removed.status.code(), StatusCode::kDeadlineExceeded) << removed.status.ToString();
}

TEST_P(MooncakeFakeTest, TheSelfTestAcceptsALease) {
  Tell("remove", Code(-706));
  OpenUp();
}

TEST_P(MooncakeFakeTest, WhatTheSelfTestFindsIsNamed) {
  Tell("get", Kind("flip"), 1000);
  Open();
  ASSERT_TRUE(WaitForState(*store_, StoreState::kDown));
  EXPECT_THAT(store_->Health().detail, HasSubstr("not those that were put"));
}

TEST_P(MooncakeFakeTest, AClusterWithoutRoomServesWhatItHas) {
  OpenUp();
  Put("key");
  ASSERT_TRUE(store_->Close(SteadyClock().Now() + kPatience).ok());
  Tell("put", Code(-200), 1000000);
  Open();
  ASSERT_TRUE(WaitForState(*store_, StoreState::kDown));
  EXPECT_THAT(store_->Health().detail, HasSubstr("mooncake_client"));
  ExpectHit("key");
  std::remove((folder_.path() + "/fault.put").c_str());
  EXPECT_TRUE(WaitForState(*store_, StoreState::kUp));
}

TEST_P(MooncakeFakeTest, ASetUpThatFailsIsNamed) {
  Tell("setup", Code(-1), 1000);
  Open();
  ASSERT_TRUE(WaitForState(*store_, StoreState::kDown));
  EXPECT_THAT(store_->Health().detail, HasSubstr("setup answers -1"));
}

TEST_P(MooncakeFakeTest, AProtocolThatIsNotThereIsRefusedByName) {
  Open(R"(,"protocol":"efa")");
  ASSERT_TRUE(WaitForState(*store_, StoreState::kDown));
  EXPECT_THAT(store_->Health().detail, HasSubstr("protocol efa"));
}

TEST_P(MooncakeFakeTest, TheBridgeEndsWithTheStore) {
  OpenUp();
  const pid_t pid = BridgePid();
  ASSERT_EQ(kill(pid, 0), 0);
  store_.reset();
  EXPECT_NE(kill(pid, 0), 0);
}

// Which client there is, and what is said where there is none.
class MooncakeWayTest : public testing::Test {
 protected:
  nlohmann::json UpWith(const std::string& options) {
    auto store = OpenFake("auto", folder_.path(), options);
    EXPECT_TRUE(store.ok() && WaitForState(**store, StoreState::kUp)) << options;
    return nlohmann::json::parse((*store)->DescribeJson());
  }
  // What it says of itself once it is down, and its bridge, if there was one, has ended.
  std::string DownWith(const std::string& way, const std::string& options) {
    auto store = OpenFake(way, folder_.path(), options);
    EXPECT_TRUE(store.ok()) << options;
    std::string detail;
    EXPECT_TRUE(WaitUntil([&] {
      const StoreHealth health = (*store)->Health();
      detail = health.detail;
      return health.state == StoreState::kDown &&
             (detail.starts_with("there is no Mooncake client") ||
              detail.starts_with("the bridge to Mooncake was ended"));
    })) << options
        << ": " << detail;
    return detail;
  }
  // A library that every machine has, and is none of Mooncake's.
  static constexpr const char* kNoLibrary = R"(,"library":"/nowhere/libmooncake_store.so")";
  static constexpr const char* kNoPython = R"(,"python":"/nowhere/python")";

  TempFolder folder_;
};

TEST_F(MooncakeWayTest, AutoTakesTheLibraryThatIsNamedAndElseTheWheel) {
  auto library = UpWith("");
  EXPECT_EQ(library["bridge"], "library");
  EXPECT_EQ(library["client"], FAKE_LIBRARY);
  EXPECT_EQ(UpWith(R"(,"library":"libmooncake_store.so")")["bridge"], "wheel");
}

TEST_F(MooncakeWayTest, AutoTakesWhatIsThere) {
  EXPECT_EQ(UpWith(kNoLibrary)["bridge"], "wheel");
  EXPECT_EQ(UpWith(kNoPython)["bridge"], "library");
}

TEST_F(MooncakeWayTest, AClientThatIsNotThereIsNamed) {
  EXPECT_THAT(DownWith("wheel", kNoPython), HasSubstr("/nowhere/python"));
  EXPECT_THAT(DownWith("library", kNoLibrary), HasSubstr("/nowhere/libmooncake_store.so"));
  EXPECT_THAT(DownWith("auto", std::string(kNoPython) + kNoLibrary),
              AllOf(HasSubstr("/nowhere/python"), HasSubstr("/nowhere/libmooncake_store.so")));
  EXPECT_THAT(DownWith("wheel", R"(,"python":"/bin/false")"), HasSubstr("exit code 1"));
}

TEST_F(MooncakeWayTest, AnInterpreterWithoutMooncakeIsNamed) {
  setenv("PYTHONPATH", "/nowhere", 1);
  StoreConfig config;
  config.json = R"({"bridge":"wheel","python":"/usr/bin/python3"})";
  auto store = CreateMooncakeStore(config);
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE(WaitForState(**store, StoreState::kDown));
  EXPECT_THAT((*store)->Health().detail, HasSubstr("No module named 'mooncake'"));
}

TEST_F(MooncakeWayTest, FunctionsThatALibraryLacksAreNamed) {
  EXPECT_THAT(DownWith("library", R"(,"library":")" INCOMPLETE_LIBRARY R"(")"),
              AllOf(HasSubstr(INCOMPLETE_LIBRARY), HasSubstr("mooncake_store_batch_get_into"),
                    Not(HasSubstr("mooncake_store_create,"))));
}

TEST_F(MooncakeWayTest, ATenantThatTheLibraryDoesNotHaveIsRefused) {
  EXPECT_THAT(DownWith("library", R"(,"tenant_id":"blue")"), HasSubstr("'blue'"));
}

}  // namespace
}  // namespace embercache
