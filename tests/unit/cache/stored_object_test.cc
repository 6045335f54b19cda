#include "src/cache/stored_object.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "embercache/store_factory.h"
#include "src/store/faulty_store.h"
#include "src/store/memory/memory_store.h"
#include "tests/support/stored_object.h"

namespace embercache {
namespace {

using testing::HasSubstr;

class StoredObjectTest : public testing::Test {
 protected:
  StoredObject Read(const std::string& id) { return ReadStoredObject(store_, id, {}, &memory_); }
  // The object of `info` with the byte at `offset` changed (from its end, where negative).
  StoredObject ReadDamaged(const EmbeddingInfo& info, int64_t offset) {
    Bytes bytes = MakeObject(7, info);
    const auto size = static_cast<int64_t>(bytes.size());
    bytes[static_cast<size_t>(offset < 0 ? size + offset : offset)] ^= std::byte{1};
    WriteObject(store_, info.key, bytes);
    return Read(info.key.Text());
  }

  FaultyStore store_{*CreateMemoryStore({})};
  ObjectMemory memory_;
};

TEST_F(StoredObjectTest, AGoodOneIsReadWithAllThatItsTrailerSays) {
  for (const size_t metadata : {0U, 10U, 5000U}) {
    const EmbeddingInfo info = TestInfo(metadata, 5, std::string(metadata, 'm'));
    WriteObject(store_, info.key, MakeObject(7, info));
    const StoredObject object = Read(info.key.Text());
    ASSERT_EQ(object.state, ObjectState::kGood) << object.status.ToString();
    EXPECT_EQ(object.object_bytes, ObjectBytes(5 * kTestRowBytes, metadata));
    EXPECT_EQ(object.trailer.info.tokens, 5U);
    EXPECT_EQ(object.trailer.info.metadata, info.metadata);
    TestRows rows(7);
    ASSERT_EQ(object.payload.size(), 5 * kTestRowBytes);
    for (size_t i = 0; i < 5; ++i) {
      const ConstBuffer row = object.payload.subspan(i * kTestRowBytes, kTestRowBytes);
      EXPECT_TRUE(std::ranges::equal(row, rows.Row(i))) << i;
    }
  }
}

TEST_F(StoredObjectTest, WhatIsNotThereIsAbsent) {
  const StoredObject object = Read(TestKey(1).Text());
  EXPECT_EQ(object.state, ObjectState::kAbsent);
  EXPECT_TRUE(object.status.ok());
}

TEST_F(StoredObjectTest, AnyChangedByteIsCorruption) {
  const EmbeddingInfo info = TestInfo(1, 5, std::string(5000, 'm'));
  const int64_t payload = 5 * kTestRowBytes;
  const int64_t trailer = static_cast<int64_t>(PaddedBytes(payload));
  for (const int64_t offset : {int64_t{0}, payload - 1, payload, trailer - 1, trailer,
                               trailer + 5000, int64_t{-4000}, int64_t{-1}}) {
    const StoredObject object = ReadDamaged(info, offset);
    EXPECT_EQ(object.state, ObjectState::kCorrupt) << offset;
    EXPECT_EQ(object.status.code(), StatusCode::kCorruption) << offset;
    EXPECT_GT(object.object_bytes, 0U);
  }
}

TEST_F(StoredObjectTest, AnotherMagicIsForeign) {
  EXPECT_EQ(ReadDamaged(TestInfo(1, 5), -4096).state, ObjectState::kForeign);
}

TEST_F(StoredObjectTest, ACutOrGrownObjectIsNotGood) {
  const EmbeddingInfo info = TestInfo(1, 9);
  const Bytes whole = MakeObject(7, info);
  for (const size_t size : {size_t{0}, size_t{100}, size_t{4096}, whole.size() - 1}) {
    WriteObject(store_, info.key, Bytes(whole.begin(), whole.begin() + static_cast<long>(size)));
    EXPECT_EQ(Read(info.key.Text()).state, ObjectState::kCorrupt) << size;
  }
  Bytes grown(4096);
  grown.insert(grown.end(), whole.begin(), whole.end());
  WriteObject(store_, info.key, grown);
  EXPECT_THAT(Read(info.key.Text()).status.message(), HasSubstr("length"));
}

TEST_F(StoredObjectTest, AnObjectUnderTheKeyOfAnotherIsCorrupt) {
  WriteObject(store_, TestKey(2), MakeObject(7, TestInfo(1, 5)));
  const StoredObject object = Read(TestKey(2).Text());
  EXPECT_EQ(object.state, ObjectState::kCorrupt);
  EXPECT_THAT(object.status.message(), HasSubstr(TestKey(1).digest.ToHex()));
}

TEST_F(StoredObjectTest, WhatStandsUnderNoKeyOfOursIsForeignUnlessItIsWhole) {
  const auto put = [&](std::string_view id, const Bytes& bytes) {
    const ConstBuffer buffer = bytes;
    ASSERT_EQ(store_.BatchPut({&id, 1}, {&buffer, 1}, {}).at(0).outcome, PutOutcome::kStored);
  };
  put("other", Bytes(10));
  EXPECT_EQ(Read("other").state, ObjectState::kForeign);
  put("id", MakeObject(7, TestInfo(1, 5)));
  EXPECT_EQ(Read("id").state, ObjectState::kGood);
}

TEST_F(StoredObjectTest, AStoreThatFailsIsNoCorruption) {
  WriteObject(store_, TestKey(1), MakeObject(7, TestInfo(1, 5)));
  for (const StoreOp op : {StoreOp::kStat, StoreOp::kGet}) {
    store_.Inject({.op = op, .count = 1});
    const StoredObject object = Read(TestKey(1).Text());
    EXPECT_EQ(object.state, ObjectState::kFailed);
    EXPECT_EQ(object.status.code(), StatusCode::kUnavailable);
  }
  EXPECT_EQ(Read(TestKey(1).Text()).state, ObjectState::kGood);
}

TEST_F(StoredObjectTest, ASizeThatChangesIsReadAgain) {
  WriteObject(store_, TestKey(1), MakeObject(7, TestInfo(1, 5)));
  store_.Inject({.op = StoreOp::kStat, .kind = FaultKind::kPhantom, .count = 1});
  EXPECT_EQ(Read(TestKey(1).Text()).state, ObjectState::kGood);
  store_.Inject({.op = StoreOp::kStat, .kind = FaultKind::kPhantom});
  EXPECT_EQ(Read(TestKey(1).Text()).state, ObjectState::kFailed);
}

}  // namespace
}  // namespace embercache
