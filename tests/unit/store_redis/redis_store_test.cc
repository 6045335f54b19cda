// What the backend does on a real server, seen by an independent client.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "src/store/redis/object.h"
#include "tests/conformance/payload.h"
#include "tests/unit/store_redis/test_server.h"

namespace embercache::redis {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr size_t kLarge = (3 << 20) + 12345;  // four chunks

class RedisStoreTest : public testing::Test {
 protected:
  std::unique_ptr<EmbeddingStore> Open(const std::string& more_options = "") const {
    return OpenStore(R"({"url":")" + server_.url() + R"(")" + more_options + "}");
  }
  void Put(EmbeddingStore& store, const std::string& key, const Bytes& bytes) {
    const PutResult put = PutOne(store, key, bytes);
    ASSERT_EQ(put.outcome, PutOutcome::kStored) << put.status.ToString();
  }
  void ExpectHit(EmbeddingStore& store, const std::string& key, const Bytes& bytes) {
    Bytes got;
    const GetResult get = GetOne(store, key, bytes.size(), &got);
    ASSERT_EQ(get.outcome, GetOutcome::kHit) << get.status.ToString();
    EXPECT_EQ(got == bytes, true) << key;
  }
  GetResult Get(EmbeddingStore& store, const std::string& key, size_t bytes) {
    Bytes got;
    return GetOne(store, key, bytes, &got);
  }
  std::vector<std::string> Chunks() {
    std::vector<std::string> chunks = server_.Keys();
    std::erase_if(chunks, [](const std::string& key) { return key[0] != '{'; });
    std::sort(chunks.begin(), chunks.end());
    return chunks;
  }

  TestServer server_;
};

TEST_F(RedisStoreTest, AnObjectOfUpToAMebibyteAndAMetadataBlockIsOneValueUnderItsKey) {
  const auto store = Open();
  Put(*store, "emb_small", PayloadOf("small", 1000));
  Put(*store, "emb_limit", PayloadOf("limit", kMaxWholeBytes));
  EXPECT_THAT(server_.Keys(), UnorderedElementsAre("emb_small", "emb_limit"));
  EXPECT_EQ(server_.Number({"STRLEN", "emb_small"}), 1000 + static_cast<int64_t>(kHeadBytes));
  EXPECT_EQ(server_.Number({"PTTL", "emb_small"}), -1);
}

TEST_F(RedisStoreTest, ALargerObjectIsAManifestAndChunksOfAMebibyte) {
  const auto store = Open();
  Put(*store, "emb_large", PayloadOf("large", kLarge));
  EXPECT_EQ(server_.Number({"STRLEN", "emb_large"}), static_cast<int64_t>(kHeadBytes));
  const auto chunks = Chunks();
  ASSERT_EQ(chunks.size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(chunks[i].starts_with("{emb_large}:"));
    EXPECT_LE(server_.Number({"STRLEN", chunks[i]}),
              static_cast<int64_t>(kChunkBytes + kHeadBytes));
    EXPECT_EQ(server_.Number({"PTTL", chunks[i]}), -1) << "a chunk may die before its manifest";
  }
}

TEST_F(RedisStoreTest, ChunksOutliveTheirManifest) {
  const auto store = Open(R"(,"ttl":"100s")");
  Put(*store, "emb_large", PayloadOf("large", kLarge));
  Put(*store, "emb_small", PayloadOf("small", 10));
  const int64_t manifest = server_.Number({"PTTL", "emb_large"});
  EXPECT_GT(manifest, 0);
  EXPECT_LE(manifest, 100'000);
  for (const std::string& chunk : Chunks()) {
    EXPECT_GT(server_.Number({"PTTL", chunk}), manifest + 30'000);
  }
  EXPECT_GT(server_.Number({"PTTL", "emb_small"}), 0);
}

TEST_F(RedisStoreTest, ObjectsExpire) {
  const auto store = Open(R"(,"ttl":"1s")");
  Put(*store, "emb_brief", PayloadOf("brief", 10));
  while (StatOne(*store, "emb_brief").found) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(Get(*store, "emb_brief", 10).outcome, GetOutcome::kMiss);
}

TEST_F(RedisStoreTest, PuttingAgainRefreshesTheAge) {
  const auto store = Open(R"(,"ttl":"1h")");
  const Bytes large = PayloadOf("large", kLarge);
  const Bytes small = PayloadOf("small", 10);
  Put(*store, "emb_large", large);
  Put(*store, "emb_small", small);
  for (const std::string& key : server_.Keys()) server_.Ask({"PEXPIRE", key, "200000"});
  EXPECT_EQ(PutOne(*store, "emb_large", large).outcome, PutOutcome::kAlreadyPresent);
  EXPECT_EQ(PutOne(*store, "emb_small", small).outcome, PutOutcome::kAlreadyPresent);
  const int64_t manifest = server_.Number({"PTTL", "emb_large"});
  EXPECT_GT(manifest, 3'000'000);
  EXPECT_GT(server_.Number({"PTTL", "emb_small"}), 3'000'000);
  for (const std::string& chunk : Chunks()) {
    EXPECT_GT(server_.Number({"PTTL", chunk}), manifest);
  }
}

TEST_F(RedisStoreTest, WhatIsThereIsNotSentAgain) {
  const auto store = Open();
  const Bytes large = PayloadOf("large", kLarge);
  Put(*store, "emb_large", large);
  const auto received = [&] {
    const std::string info = server_.Ask({"INFO", "stats"}).text;
    return std::stoll(info.substr(info.find("total_net_input_bytes:") + 22));
  };
  const int64_t before = received();
  EXPECT_EQ(PutOne(*store, "emb_large", large).outcome, PutOutcome::kAlreadyPresent);
  EXPECT_LT(received() - before, 10'000);
}

TEST_F(RedisStoreTest, AnObjectThatLacksAChunkIsAMissAndTheRestIsRemoved) {
  const auto store = Open();
  const Bytes large = PayloadOf("large", kLarge);
  for (size_t i = 0; i < 4; ++i) {
    Put(*store, "emb_large", large);
    server_.Ask({"DEL", Chunks()[i]});
    EXPECT_EQ(Get(*store, "emb_large", kLarge).outcome, GetOutcome::kMiss);
    EXPECT_THAT(server_.Keys(), IsEmpty());
  }
}

TEST_F(RedisStoreTest, ChunksOfTwoGenerationsAreAMissAndAreRemoved) {
  const auto store = Open();
  Put(*store, "emb_large", PayloadOf("first", kLarge));
  const std::string old_chunk = server_.Ask({"GET", Chunks()[1]}).text;
  ASSERT_EQ(PutOne(*store, "emb_large", PayloadOf("second", kLarge), PutMode::kReplace).outcome,
            PutOutcome::kStored);
  server_.Ask({"SET", Chunks()[1], old_chunk});
  EXPECT_EQ(Get(*store, "emb_large", kLarge).outcome, GetOutcome::kMiss);
  EXPECT_THAT(server_.Keys(), IsEmpty());
}

TEST_F(RedisStoreTest, ChunksInEachOthersPlaceOrCutShortAreAMiss) {
  const auto store = Open();
  const Bytes large = PayloadOf("large", kLarge);
  Put(*store, "emb_large", large);
  server_.Ask({"SET", Chunks()[0], server_.Ask({"GET", Chunks()[1]}).text});
  EXPECT_EQ(Get(*store, "emb_large", kLarge).outcome, GetOutcome::kMiss);
  Put(*store, "emb_large", large);
  server_.Ask({"SETRANGE", Chunks()[0], "1048700", "longer"});
  EXPECT_EQ(Get(*store, "emb_large", kLarge).outcome, GetOutcome::kMiss);
  Put(*store, "emb_large", large);
  server_.Ask({"SET", Chunks()[3], server_.Ask({"GETRANGE", Chunks()[3], "0", "60"}).text});
  EXPECT_EQ(Get(*store, "emb_large", kLarge).outcome, GetOutcome::kMiss);
  EXPECT_THAT(server_.Keys(), IsEmpty());
}

TEST_F(RedisStoreTest, PutIfAbsentTakesThePlaceOfAnObjectThatLacksChunks) {
  const auto store = Open();
  for (const size_t size : {size_t{100}, kLarge}) {
    Put(*store, "emb_x", PayloadOf("torn", kLarge));
    server_.Ask({"DEL", Chunks()[2]});
    const Bytes bytes = PayloadOf("new", size);
    Put(*store, "emb_x", bytes);
    ExpectHit(*store, "emb_x", bytes);
    EXPECT_EQ(Chunks().size(), size == 100 ? 0U : 4U);
    ASSERT_EQ(RemoveOne(*store, "emb_x").outcome, RemoveOutcome::kRemoved);
  }
}

TEST_F(RedisStoreTest, ReplacingAndRemovingLeavesNoChunks) {
  const auto store = Open();
  for (const size_t size : {kLarge, size_t{10}, kLarge, 2 * kLarge}) {
    const Bytes bytes = PayloadOf("replaced", size);
    ASSERT_EQ(PutOne(*store, "emb_x", bytes, PutMode::kReplace).outcome, PutOutcome::kStored);
    ExpectHit(*store, "emb_x", bytes);
    EXPECT_EQ(Chunks().size(), ChunkCount(size));
  }
  EXPECT_EQ(RemoveOne(*store, "emb_x").outcome, RemoveOutcome::kRemoved);
  EXPECT_THAT(server_.Keys(), IsEmpty());
}

TEST_F(RedisStoreTest, ValuesOfOthersAreToldAndLeftAlone) {
  const auto store = Open();
  server_.Ask({"SET", "emb_text", "hello"});
  server_.Ask({"RPUSH", "emb_list", "a", "b"});
  for (const std::string key : {"emb_text", "emb_list"}) {
    EXPECT_EQ(StatOne(*store, key).status.code(), StatusCode::kCorruption) << key;
    const GetResult get = Get(*store, key, 5);
    EXPECT_EQ(get.outcome, GetOutcome::kFailed) << key;
    EXPECT_EQ(get.status.code(), StatusCode::kCorruption) << key;
    EXPECT_EQ(PutOne(*store, key, PayloadOf("x", 100)).status.code(), StatusCode::kCorruption);
  }
  EXPECT_EQ(server_.Ask({"GET", "emb_text"}).text, "hello");
  EXPECT_EQ(server_.Number({"LLEN", "emb_list"}), 2);
  const auto page = store->List("", 100, {});
  ASSERT_TRUE(page.ok());
  EXPECT_TRUE(page->objects.empty());
}

TEST_F(RedisStoreTest, ADamagedValueCanBeReplacedAndRemoved) {
  const auto store = Open();
  const Bytes bytes = PayloadOf("repaired", 500);
  server_.Ask({"SET", "emb_x", "damaged"});
  ASSERT_EQ(PutOne(*store, "emb_x", bytes, PutMode::kReplace).outcome, PutOutcome::kStored);
  ExpectHit(*store, "emb_x", bytes);
  server_.Ask({"SET", "emb_x", "damaged"});
  EXPECT_EQ(RemoveOne(*store, "emb_x", ObjectVersion{1, 2}).outcome, RemoveOutcome::kChanged);
  EXPECT_EQ(RemoveOne(*store, "emb_x").outcome, RemoveOutcome::kRemoved);
  EXPECT_THAT(server_.Keys(), IsEmpty());
}

TEST_F(RedisStoreTest, AValueOfALaterFormatIsNeverTouched) {
  const auto store = Open();
  Put(*store, "emb_x", PayloadOf("x", 100));
  server_.Ask({"SETRANGE", "emb_x", "4", "\x02"});
  const std::string later = server_.Ask({"GET", "emb_x"}).text;
  EXPECT_EQ(Get(*store, "emb_x", 100).status.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(PutOne(*store, "emb_x", PayloadOf("y", 100), PutMode::kReplace).outcome,
            PutOutcome::kFailed);
  EXPECT_EQ(RemoveOne(*store, "emb_x").outcome, RemoveOutcome::kFailed);
  EXPECT_EQ(server_.Ask({"GET", "emb_x"}).text, later);
}

TEST_F(RedisStoreTest, AValueThatBelongsToAnotherKeyIsNotServed) {
  const auto store = Open();
  Put(*store, "emb_a", PayloadOf("a", 100));
  server_.Ask({"COPY", "emb_a", "emb_b"});
  const GetResult get = Get(*store, "emb_b", 100);
  EXPECT_EQ(get.outcome, GetOutcome::kFailed);
  EXPECT_EQ(get.status.code(), StatusCode::kCorruption);
}

TEST_F(RedisStoreTest, AnErrorInTheMiddleOfABatchFailsItsItemAlone) {
  const auto store = Open();
  const Bytes bytes = PayloadOf("x", 50'000);
  std::vector<std::string> names;
  for (int i = 0; i < 9; ++i) names.push_back("emb_" + std::to_string(i));
  for (const std::string& name : names) Put(*store, name, bytes);
  for (const int bad : {2, 5}) {
    server_.Ask({"DEL", names[static_cast<size_t>(bad)]});
    server_.Ask({"RPUSH", names[static_cast<size_t>(bad)], "x"});
  }
  std::vector<Bytes> memory(9, Bytes(bytes.size()));
  const std::vector<std::string_view> keys(names.begin(), names.end());
  const std::vector<MutableBuffer> buffers(memory.begin(), memory.end());
  const auto results = store->BatchGet(keys, buffers, {});
  for (size_t i = 0; i < 9; ++i) {
    const bool bad = i == 2 || i == 5;
    EXPECT_EQ(results[i].outcome, bad ? GetOutcome::kFailed : GetOutcome::kHit) << i;
    if (!bad) {
      EXPECT_EQ(memory[i] == bytes, true) << i;
    }
  }
}

TEST_F(RedisStoreTest, AServerWithoutMemoryRefusesPutsAndServesGets) {
  const auto store = Open();
  const Bytes kept = PayloadOf("kept", 100'000);
  Put(*store, "emb_kept", kept);
  server_.Ask({"CONFIG", "SET", "maxmemory-policy", "noeviction"});
  server_.Ask({"CONFIG", "SET", "maxmemory", "1mb"});
  for (const size_t size : {size_t{1000}, kLarge}) {
    for (const PutMode mode : {PutMode::kIfAbsent, PutMode::kReplace}) {
      const PutResult put = PutOne(*store, "emb_new", PayloadOf("new", size), mode);
      EXPECT_EQ(put.outcome, PutOutcome::kFailed);
      EXPECT_EQ(put.status.code(), StatusCode::kResourceExhausted) << put.status.ToString();
    }
  }
  ExpectHit(*store, "emb_kept", kept);
  EXPECT_EQ(store->Health().state, StoreState::kUp);
  EXPECT_THAT(server_.Keys(), UnorderedElementsAre("emb_kept"));
  server_.Ask({"CONFIG", "SET", "maxmemory", "0"});
  Put(*store, "emb_new", PayloadOf("new", kLarge));
}

TEST_F(RedisStoreTest, MemoryThatRunsOutInTheMiddleOfAnObjectLeavesNothing) {
  const auto store = Open();
  server_.Ask({"CONFIG", "SET", "maxmemory-policy", "noeviction"});
  server_.Ask({"CONFIG", "SET", "maxmemory", "16mb"});
  const PutResult put = PutOne(*store, "emb_huge", PayloadOf("huge", 40 << 20));
  EXPECT_EQ(put.status.code(), StatusCode::kResourceExhausted) << put.status.ToString();
  EXPECT_THAT(server_.Keys(), IsEmpty());
}

TEST_F(RedisStoreTest, ChunksOfAWriterThatNeverFinishesExpire) {
  // This user may send chunks, and then do nothing more with them.
  server_.Ask({"ACL", "SETUSER", "cache", "on", ">secret", "~*", "+@all", "-watch", "-unlink"});
  setenv("EMBERCACHE_REDIS_PASSWORD", "secret", 1);
  const auto store = Open(R"(,"username":"cache")");
  unsetenv("EMBERCACHE_REDIS_PASSWORD");
  const PutResult put = PutOne(*store, "emb_large", PayloadOf("large", kLarge));
  EXPECT_EQ(put.outcome, PutOutcome::kFailed);
  EXPECT_THAT(put.status.message(), HasSubstr("NOPERM"));
  EXPECT_EQ(Chunks().size(), 4U);
  EXPECT_EQ(server_.Keys().size(), 4U);
  for (const std::string& chunk : Chunks()) {
    EXPECT_GT(server_.Number({"PTTL", chunk}), 0);
    EXPECT_LT(server_.Number({"PTTL", chunk}), 10 * 60 * 1000);
  }
}

TEST_F(RedisStoreTest, AFlushedServerHasMisses) {
  const auto store = Open();
  const Bytes large = PayloadOf("large", kLarge);
  Put(*store, "emb_large", large);
  server_.Ask({"FLUSHALL"});
  EXPECT_EQ(Get(*store, "emb_large", kLarge).outcome, GetOutcome::kMiss);
  Put(*store, "emb_large", large);
  ExpectHit(*store, "emb_large", large);
}

TEST_F(RedisStoreTest, TheDatabaseThatIsNamedIsUsed) {
  const auto store = Open(R"(,"database":3)");
  Put(*store, "emb_x", PayloadOf("x", 10));
  EXPECT_THAT(server_.Keys(), IsEmpty());
  server_.Ask({"SELECT", "3"});
  EXPECT_THAT(server_.Keys(), UnorderedElementsAre("emb_x"));
}

TEST(RedisOldServerTest, AServerWithoutHelloServes) {
  TestServer server(TestServer::Options{.arguments = {"--rename-command", "HELLO", ""}});
  server.Ask({"CONFIG", "SET", "requirepass", "secret"});
  setenv("EMBERCACHE_REDIS_PASSWORD", "secret", 1);
  const auto store = OpenStore(R"({"url":")" + server.url() + R"(/2"})");
  unsetenv("EMBERCACHE_REDIS_PASSWORD");
  for (const size_t size : {size_t{10}, kLarge}) {
    const std::string key = "emb_" + std::to_string(size);
    const Bytes bytes = PayloadOf(key, size);
    ASSERT_EQ(PutOne(*store, key, bytes).outcome, PutOutcome::kStored);
    Bytes got;
    ASSERT_EQ(GetOne(*store, key, size, &got).outcome, GetOutcome::kHit);
    EXPECT_TRUE(got == bytes);
  }
  EXPECT_EQ(StatOne(*store, "emb_absent").found, false);
}

TEST_F(RedisStoreTest, AUnixSocketServes) {
  const auto store = OpenStoreAt(server_.unix_url());
  const Bytes large = PayloadOf("large", kLarge);
  Put(*store, "emb_large", large);
  ExpectHit(*store, "emb_large", large);
}

TEST_F(RedisStoreTest, ItDescribesItselfWithoutSecrets) {
  server_.Ask({"CONFIG", "SET", "requirepass", "secret"});
  setenv("EMBERCACHE_REDIS_PASSWORD", "secret", 1);
  const auto store = Open();
  unsetenv("EMBERCACHE_REDIS_PASSWORD");
  Put(*store, "emb_x", PayloadOf("x", 10));
  const std::string description = store->DescribeJson();
  EXPECT_THAT(description, HasSubstr(R"("software":"redis")"));
  EXPECT_THAT(description, HasSubstr(server_.url()));
  EXPECT_THAT(description, testing::Not(HasSubstr("secret")));
}

TEST_F(RedisStoreTest, AWrongPasswordIsToldAndIsNoFailureOfTheStart) {
  server_.Ask({"CONFIG", "SET", "requirepass", "secret"});
  for (const bool wrong : {true, false}) {
    if (wrong) setenv("EMBERCACHE_REDIS_PASSWORD", "wrong", 1);
    const auto store = Open();
    unsetenv("EMBERCACHE_REDIS_PASSWORD");
    const PutResult put = PutOne(*store, "emb_x", PayloadOf("x", 10));
    EXPECT_EQ(put.status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(put.status.message(), HasSubstr(wrong ? "WRONGPASS" : "EMBERCACHE_REDIS_PASSWORD"));
    EXPECT_EQ(store->Health().state, StoreState::kDown);
    EXPECT_THAT(store->Health().detail, HasSubstr(server_.url().substr(8)));
  }
}

}  // namespace
}  // namespace embercache::redis
