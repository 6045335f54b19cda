#include <gtest/gtest.h>

#include <optional>

#include "tests/support/controller_fixture.h"

// Reads by key alone: nothing is inserted, and nobody else's object is touched.

namespace embercache {
namespace {

using std::chrono::seconds;

class ReadTest : public testing::Test {
 protected:
  void Store(uint64_t number, const EmbeddingInfo& info) {
    WriteObject(*store_, TestKey(number), MakeObject(number, info));
  }
  bool IsStored(uint64_t number) { return ReadObject(*store_, TestKey(number)).has_value(); }

  Result<Pin> Read(uint64_t number, std::vector<EmbeddingSpec> specs = {OtherSpec(), TestSpec()}) {
    std::optional<Result<Pin>> answer;
    node_.controller->Read(TestKey(number), std::move(specs), node_.clock.Now() + seconds(1),
                           [&answer](Result<Pin> pin) {
                             ASSERT_FALSE(answer.has_value()) << "answered twice";
                             answer.emplace(std::move(pin));
                           });
    node_.Settle();
    EXPECT_TRUE(answer.has_value());
    return answer ? std::move(*answer) : Result<Pin>(Status::Internal("no answer"));
  }
  StatusCode ReadError(uint64_t number) { return Read(number).status().code(); }

  // Another model's.
  static EmbeddingSpec OtherSpec() {
    EmbeddingSpec spec = TestSpec();
    spec.namespace_digest = Sha256Of("another namespace");
    spec.hidden = 2 * kTestHidden;
    return spec;
  }

  std::shared_ptr<EmbeddingStore> store_ = NewMemoryStore();
  Node node_{store_};
};

TEST_F(ReadTest, WhatIsInTheHostCacheIsGivenWithoutTheStore) {
  node_.Encode(1, 4).Release();
  const uint64_t before = node_.faults->Seen(StoreOp::kGet);
  const Result<Pin> pin = Read(1);
  ASSERT_TRUE(pin.ok()) << pin.status().ToString();
  EXPECT_TRUE(Holds(1, *pin, 4));
  EXPECT_TRUE(pin->cached());
  EXPECT_EQ(node_.faults->Seen(StoreOp::kGet), before);
}

TEST_F(ReadTest, WhatTheStoreHasIsReadIntoTheArenaAndNotInserted) {
  Store(1, TestInfo(1, 5, R"({"width":7})"));
  Result<Pin> pin = Read(1);
  ASSERT_TRUE(pin.ok()) << pin.status().ToString();
  EXPECT_TRUE(Holds(1, *pin, 5));
  EXPECT_EQ(pin->info().metadata, R"({"width":7})");
  EXPECT_FALSE(pin->cached());
  EXPECT_FALSE(node_.controller->HasLocalEmbedding(TestKey(1)));
  EXPECT_EQ(node_.Pool().ready, 0U);
  EXPECT_GT(node_.Arena().ready, 0U);
  pin->Release();
  EXPECT_EQ(node_.Arena().free, node_.Arena().pages);
}

TEST_F(ReadTest, TheSpecIsThatOfTheObjectsNamespace) {
  EmbeddingInfo info = TestInfo(1, 3);
  info.spec = OtherSpec();
  Store(1, info);
  const Result<Pin> pin = Read(1);
  ASSERT_TRUE(pin.ok()) << pin.status().ToString();
  EXPECT_EQ(pin->info().spec, OtherSpec());
  EXPECT_EQ(pin->info().tokens, 3U);
}

TEST_F(ReadTest, AnObjectOfANamespaceThatIsNotServedIsAMissAndStays) {
  EmbeddingInfo info = TestInfo(1, 3);
  info.spec.namespace_digest = Sha256Of("somebody else's");
  Store(1, info);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ReadError(1), StatusCode::kNotFound);
  EXPECT_TRUE(IsStored(1));
  EXPECT_EQ(node_.metrics->corruptions.Add({{"backend", "memory"}}).Value(), 0);
}

TEST_F(ReadTest, WhatIsDamagedIsNeverGiven) {
  Bytes object = MakeObject(1, TestInfo(1, 5));
  object[100] ^= std::byte{1};
  WriteObject(*store_, TestKey(1), object);
  EXPECT_EQ(ReadError(1), StatusCode::kNotFound);
  EXPECT_EQ(node_.metrics->corruptions.Add({{"backend", "memory"}}).Value(), 1);
}

TEST_F(ReadTest, AMissAFailureAndAFullArenaAreToldApart) {
  EXPECT_EQ(ReadError(1), StatusCode::kNotFound);
  Store(2, TestInfo(2, 4000));
  const Status full = Read(2).status();
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(full.retryable());
  std::optional<Status> late;
  node_.controller->Read(TestKey(1), {TestSpec()}, node_.clock.Now() + seconds(1),
                         [&late](const Result<Pin>& pin) { late = pin.status(); });
  node_.Advance(seconds(2));
  ASSERT_TRUE(late.has_value()) << "the deadline has passed";
  EXPECT_EQ(late->code(), StatusCode::kUnavailable);
  node_.Settle();
}

TEST_F(ReadTest, WithoutAStoreOnlyTheHostCacheIsRead) {
  Node alone{nullptr};
  std::optional<Status> answer;
  alone.controller->Read(TestKey(1), {TestSpec()}, alone.clock.Now() + seconds(1),
                         [&answer](const Result<Pin>& pin) { answer = pin.status(); });
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace embercache
