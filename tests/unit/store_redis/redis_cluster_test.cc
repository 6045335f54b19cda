#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>
#include <set>
#include <string>
#include <thread>

#include "src/store/redis/cluster.h"
#include "src/store/redis/object.h"
#include "tests/conformance/payload.h"
#include "tests/unit/store_redis/test_server.h"

namespace embercache::redis {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr size_t kLarge = (2 << 20) + 5;  // three chunks

class RedisClusterStoreTest : public testing::Test {
 protected:
  // A key whose slot that server has.
  static std::string KeyOn(size_t server) {
    for (int i = 0;; ++i) {
      std::string key = fmt::format("emb_{}", i);
      if (TestCluster::OwnerOf(SlotOf(key)) == server) return key;
    }
  }
  static void ExpectHit(EmbeddingStore& store, const std::string& key, const Bytes& bytes) {
    Bytes got;
    const GetResult get = GetOne(store, key, bytes.size(), &got);
    ASSERT_EQ(get.outcome, GetOutcome::kHit) << get.status.ToString();
    EXPECT_TRUE(got == bytes);
  }
  static void ExpectStored(EmbeddingStore& store, const std::string& key, const Bytes& bytes) {
    const PutResult put = PutOne(store, key, bytes);
    ASSERT_EQ(put.outcome, PutOutcome::kStored) << put.status.ToString();
  }
  void SetSlot(size_t asked, uint16_t slot, const std::string& how, size_t node) {
    const auto reply = cluster_.server(asked).Ask(
        {"CLUSTER", "SETSLOT", std::to_string(slot), how, cluster_.id(node)});
    ASSERT_FALSE(reply.is_error) << reply.text;
  }
  void Migrate(size_t from, size_t to, const std::string& redis_key) {
    const auto reply = cluster_.server(from).Ask({"MIGRATE", "127.0.0.1",
                                                  std::to_string(cluster_.server(to).port()),
                                                  redis_key, "0", "30000"});
    ASSERT_FALSE(reply.is_error) << reply.text;
  }

  TestCluster cluster_;
  const std::unique_ptr<EmbeddingStore> store_ = OpenStoreAt(cluster_.server(0).url());
};

TEST_F(RedisClusterStoreTest, EachObjectLiesWithAllItsChunksOnTheServerOfItsSlot) {
  for (size_t server = 0; server < 3; ++server) {
    const std::string key = KeyOn(server);
    const Bytes bytes = PayloadOf(key, kLarge);
    ExpectStored(*store_, key, bytes);
    ExpectHit(*store_, key, bytes);
    EXPECT_EQ(cluster_.server(server).Keys().size(), 4U);
  }
  EXPECT_EQ(store_->Health().state, StoreState::kUp);
  EXPECT_THAT(store_->DescribeJson(), HasSubstr(R"("mode":"cluster")"));
}

TEST_F(RedisClusterStoreTest, ListingWalksAllServers) {
  std::set<std::string> put;
  for (int i = 0; i < 60; ++i) {
    const std::string key = fmt::format("emb_{}", i);
    ExpectStored(*store_, key, PayloadOf(key, 100));
    put.insert(key);
  }
  std::set<std::string> listed;
  std::string cursor;
  do {
    const auto page = store_->List(cursor, 7, {});
    ASSERT_TRUE(page.ok()) << page.status().ToString();
    for (const ListedObject& object : page->objects) listed.insert(object.id);
    cursor = page->next_cursor;
  } while (!cursor.empty());
  EXPECT_EQ(listed, put);
}

TEST_F(RedisClusterStoreTest, ASlotThatIsMovingAndHasMovedIsFollowed) {
  const std::string key = KeyOn(0);
  const uint16_t slot = SlotOf(key);
  const Bytes bytes = PayloadOf(key, kLarge);
  ExpectStored(*store_, key, bytes);
  SetSlot(1, slot, "IMPORTING", 0);
  SetSlot(0, slot, "MIGRATING", 1);
  for (const std::string& name : cluster_.server(0).Keys()) {
    if (name[0] == '{') Migrate(0, 1, name);
  }
  ExpectHit(*store_, key, bytes);  // manifest there, chunks behind ASK
  Migrate(0, 1, key);
  ExpectHit(*store_, key, bytes);  // all of it behind ASK
  EXPECT_TRUE(StatOne(*store_, key).found);
  SetSlot(1, slot, "NODE", 1);
  SetSlot(0, slot, "NODE", 1);
  ExpectHit(*store_, key, bytes);  // behind MOVED
  EXPECT_EQ(RemoveOne(*store_, key).outcome, RemoveOutcome::kRemoved);
  EXPECT_TRUE(cluster_.Keys().empty());
  ExpectStored(*store_, key, bytes);
  EXPECT_EQ(cluster_.server(1).Keys().size(), 4U);
}

TEST_F(RedisClusterStoreTest, PutsIntoAMovingSlotFailOrAreWhole) {
  const std::string small = KeyOn(0);
  const uint16_t slot = SlotOf(small);
  std::string large = "large";
  for (int i = 0; SlotOf(large) != slot; ++i) large = fmt::format("large_{}", i);
  ASSERT_TRUE(StatOne(*store_, small).status.ok());
  SetSlot(1, slot, "IMPORTING", 0);
  SetSlot(0, slot, "MIGRATING", 1);
  for (const std::string& key : {small, large}) {
    const Bytes bytes = PayloadOf(key, key == small ? 5000 : kLarge);
    const PutResult put = PutOne(*store_, key, bytes);
    if (put.outcome == PutOutcome::kFailed) {
      EXPECT_TRUE(put.status.retryable()) << put.status.ToString();
    } else {
      ExpectHit(*store_, key, bytes);
    }
  }
}

TEST_F(RedisClusterStoreTest, AServerThatIsGoneCostsItsOwnSlotsAlone) {
  std::vector<std::string> keys;
  for (size_t i = 0; i < 3; ++i) {
    keys.push_back(KeyOn(i));
    ExpectStored(*store_, keys[i], PayloadOf(keys[i], 10'000));
  }
  cluster_.server(2).Kill();
  Bytes got;
  EXPECT_EQ(GetOne(*store_, keys[2], 10'000, &got).outcome, GetOutcome::kFailed);
  for (const size_t i : {0U, 1U}) ExpectHit(*store_, keys[i], PayloadOf(keys[i], 10'000));
  EXPECT_EQ(store_->Health().state, StoreState::kUp);
  cluster_.server(2).Start();
  GetResult get;
  do {
    get = GetOne(*store_, keys[2], 10'000, &got);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (get.outcome == GetOutcome::kFailed);
  EXPECT_EQ(get.outcome, GetOutcome::kMiss);
}

TEST_F(RedisClusterStoreTest, AReplicaThatTakesOverServes) {
  const std::string key = KeyOn(1);
  const Bytes bytes = PayloadOf(key, kLarge);
  const size_t replica = cluster_.AddReplica(1);
  ExpectStored(*store_, key, bytes);
  while (cluster_.server(replica).Number({"DBSIZE"}) < 4) std::this_thread::yield();
  cluster_.server(1).Kill();
  ASSERT_EQ(cluster_.server(replica).Ask({"CLUSTER", "FAILOVER", "TAKEOVER"}).text, "OK");
  Bytes got;
  GetResult get;
  do {
    get = GetOne(*store_, key, kLarge, &got);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (get.outcome == GetOutcome::kFailed);
  EXPECT_EQ(get.outcome, GetOutcome::kHit);
  EXPECT_TRUE(got == bytes);
  EXPECT_EQ(RemoveOne(*store_, key).outcome, RemoveOutcome::kRemoved);
  ExpectStored(*store_, key, bytes);
}

TEST_F(RedisClusterStoreTest, TheServerOfTheUrlMayDieOnceTheOthersAreKnown) {
  const std::string key = KeyOn(1);
  const Bytes bytes = PayloadOf(key, kLarge);
  ExpectStored(*store_, key, bytes);
  cluster_.server(0).Kill();
  ExpectHit(*store_, key, bytes);
}

TEST_F(RedisClusterStoreTest, ADatabaseOtherThanTheFirstIsRefusedByName) {
  const auto store =
      OpenStore(fmt::format(R"({{"url":"{}","database":2}})", cluster_.server(0).url()));
  const PutResult put = PutOne(*store, "emb_x", PayloadOf("x", 10));
  EXPECT_EQ(put.outcome, PutOutcome::kFailed);
  EXPECT_THAT(put.status.message(), HasSubstr("database 0"));
}

TEST(RedisFailoverTest, AServerThatBecameAReplicaIsLeftForTheNewMaster) {
  // What a failover looks like behind one address: the server at hand refuses writes.
  TestServer server;
  const auto store = OpenStoreAt(server.url());
  const Bytes bytes = PayloadOf("x", 1000);
  ASSERT_EQ(PutOne(*store, "emb_x", bytes).outcome, PutOutcome::kStored);
  server.Ask({"REPLICAOF", "127.0.0.1", std::to_string(FreePort())});
  const PutResult put = PutOne(*store, "emb_y", bytes);
  EXPECT_EQ(put.status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(put.status.message(), HasSubstr("READONLY"));
  server.Ask({"REPLICAOF", "NO", "ONE"});
  while (PutOne(*store, "emb_y", bytes).outcome == PutOutcome::kFailed) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace
}  // namespace embercache::redis
