#include "src/cache/byte_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/memory/page_pool.h"
#include "src/store/memory/memory_store.h"
#include "tests/support/stored_object.h"

// Bytes under hashes, for controllers that know nothing else: enveloped, and verified on each get.

namespace embercache {
namespace {

using ::testing::ElementsAre;

class ByteStoreTest : public ::testing::Test {
 protected:
  ByteStoreTest() {
    Result<std::unique_ptr<EmbeddingStore>> made = CreateMemoryStore({});
    EXPECT_TRUE(made.ok());
    memory_ = *std::move(made);
  }

  ByteStore Open(std::string_view model = "model") {
    return ByteStore(memory_, NamespaceDigest({.model_id = std::string(model)}));
  }
  static Bytes Payload(uint64_t tag, size_t bytes) {
    Bytes payload(bytes);
    const MutableBuffer buffer = payload;
    FillWith(tag, std::span(&buffer, 1));
    return payload;
  }
  static void Put(ByteStore& store, const std::string& hash, const Bytes& payload) {
    const size_t half = payload.size() / 2;
    const BytePutItem item{hash,
                           {ConstBuffer(payload).first(half), ConstBuffer(payload).subspan(half)}};
    EXPECT_EQ(store.Put(std::span(&item, 1), {}).front().outcome, PutOutcome::kStored);
  }
  static GetOutcome Get(ByteStore& store, const std::string& hash, Bytes* into) {
    const ByteGetItem item{hash, {MutableBuffer(*into)}};
    return store.Get(std::span(&item, 1), {}).front();
  }
  static EmbeddingKey KeyOf(const std::string& hash) {
    return EmbeddingKey::FromCallerHash(NamespaceDigest({.model_id = "model"}), hash);
  }

  std::shared_ptr<EmbeddingStore> memory_;
};

TEST_F(ByteStoreTest, WhatWasPutComesBackWhateverItsSize) {
  ByteStore store = Open();
  for (const size_t bytes : {size_t{2}, size_t{4096}, size_t{4097}, size_t{1} << 20}) {
    const std::string hash = std::to_string(bytes);
    Put(store, hash, Payload(bytes, bytes));
    Bytes read(bytes);
    EXPECT_EQ(Get(store, hash, &read), GetOutcome::kHit);
    EXPECT_EQ(read, Payload(bytes, bytes));
  }
}

TEST_F(ByteStoreTest, AnObjectOfAnotherSizeOrNamespaceIsNoHit) {
  ByteStore store = Open();
  ByteStore other = Open("another model");
  Put(store, "h", Payload(1, 8000));
  for (const size_t bytes :
       {size_t{100}, size_t{4000}, size_t{7999}, size_t{8001}, size_t{20000}}) {
    Bytes read(bytes);
    EXPECT_NE(Get(store, "h", &read), GetOutcome::kHit) << bytes;
  }
  Bytes read(8000);
  EXPECT_EQ(Get(store, "h", &read), GetOutcome::kHit) << "it stays for those who know its size";
  EXPECT_EQ(Get(other, "h", &read), GetOutcome::kMiss);
  EXPECT_THAT(store.Exist(std::vector<std::string>{"h", "i"}, {}), ElementsAre(true, false));
  EXPECT_THAT(other.Exist(std::vector<std::string>{"h"}, {}), ElementsAre(false));
}

TEST_F(ByteStoreTest, AnyFlippedByteMakesItAMissAndTheObjectGoes) {
  ByteStore store = Open();
  for (const size_t at :
       {size_t{0}, size_t{4999}, size_t{5000}, size_t{8191}, size_t{8192 + 300}}) {
    Put(store, "h", Payload(1, 5000));
    Bytes object = *ReadObject(*memory_, KeyOf("h"));
    ASSERT_EQ(object.size(), 8192U + kBlockBytes);
    object[at] ^= std::byte{1};
    WriteObject(*memory_, KeyOf("h"), object);
    Bytes read(5000);
    EXPECT_EQ(Get(store, "h", &read), GetOutcome::kMiss) << at;
    EXPECT_FALSE(ReadObject(*memory_, KeyOf("h"))) << at;
  }
}

TEST_F(ByteStoreTest, AnObjectOfAnotherOriginIsAMissAndStays) {
  ByteStore store = Open();
  WriteObject(*memory_, KeyOf("h"), Bytes(8192 + kBlockBytes, std::byte{1}));
  Bytes read(5000);
  EXPECT_EQ(Get(store, "h", &read), GetOutcome::kMiss);
  EXPECT_TRUE(ReadObject(*memory_, KeyOf("h")));
}

TEST_F(ByteStoreTest, AnObjectWithMoreMetadataThanABlockIsRead) {
  ByteStore store = Open();
  EmbeddingInfo info = TestInfo(1, 10, std::string(9000, 'm'));
  info.key = KeyOf("h");
  info.spec.namespace_digest = NamespaceDigest({.model_id = "model"});
  WriteObject(*memory_, info.key, MakeObject(1, info));
  Bytes read(info.payload_bytes());
  EXPECT_EQ(Get(store, "h", &read), GetOutcome::kHit);
  EXPECT_EQ(read, Payload(1, info.payload_bytes()));
}

TEST_F(ByteStoreTest, EachItemIsAnsweredInOrderAndAnEmptyOneIsRefused) {
  ByteStore store = Open();
  const Bytes payload = Payload(1, 100);
  const std::vector<BytePutItem> puts = {
      {"a", {ConstBuffer(payload)}}, {"b", {}}, {"a", {ConstBuffer(payload)}}};
  const std::vector<PutResult> put = store.Put(puts, {});
  EXPECT_EQ(put[0].outcome, PutOutcome::kStored);
  EXPECT_EQ(put[1].status.code(), StatusCode::kInvalid);
  EXPECT_EQ(put[2].outcome, PutOutcome::kAlreadyPresent);
  Bytes one(100), two(100);
  const std::vector<ByteGetItem> gets = {
      {"x", {MutableBuffer(one)}}, {"a", {MutableBuffer(two)}}, {"b", {}}};
  EXPECT_THAT(store.Get(gets, {}),
              ElementsAre(GetOutcome::kMiss, GetOutcome::kHit, GetOutcome::kMiss));
  EXPECT_EQ(two, payload);
}

}  // namespace
}  // namespace embercache
