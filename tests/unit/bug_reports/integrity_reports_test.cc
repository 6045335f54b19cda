// Faults that users of such caches reported, as tests of the cache core: wrong bytes.

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "src/base/log.h"
#include "src/store/memory/memory_store.h"
#include "tests/simulation/real_node.h"

namespace embercache::simulation {
namespace {

bool Stored(EmbeddingStore& store, const Media& media) {
  const std::string key = media.key.Text();
  const std::string_view view = key;
  return store.BatchStat(std::span(&view, 1), {}).front().found;
}

class IntegrityReports : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(SetLogLevel("error").ok()); }

  const std::shared_ptr<EmbeddingStore> store_ = CreateMemoryStore({}).value();
  const Media media_ = MediaOf("photo", 1, 300);
};

// A failed write must not stay visible, nor be taken for a confirmed one.
class FailedWrite : public IntegrityReports, public testing::WithParamInterface<FaultKind> {};

TEST_P(FailedWrite, LeavesAMissAndIsOfferedAgain) {
  ControllerOptions options = NodeOptions();
  options.publish_confirm = std::chrono::hours(1);
  RealNode writer(store_, options);
  writer.store->Inject({.op = StoreOp::kPut, .kind = GetParam(), .count = 1});
  (void)writer.Have(media_);
  (void)writer.Publish(media_);
  EXPECT_EQ(writer.published("failed"), 1);
  EXPECT_EQ(writer.published("stored"), 0);
  if (GetParam() == FaultKind::kError) {
    RealNode early(store_);
    EXPECT_TRUE(early.Lookup(media_).claim);
  }

  (void)writer.Publish(media_);
  RealNode reader(store_);
  const LookupAnswer answer = reader.Lookup(media_);
  ASSERT_TRUE(answer.pin);
  EXPECT_EQ(CheckPin(media_, answer.pin), "");
}

INSTANTIATE_TEST_SUITE_P(Faults, FailedWrite,
                         testing::Values(FaultKind::kError, FaultKind::kLostReply,
                                         FaultKind::kFewResults, FaultKind::kThrow));

// The store says stored, and has half of it.
TEST_F(IntegrityReports, HalfAnObjectIsAMissThatGoesAwayAndCanBeStoredAgain) {
  for (const bool known : {true, false}) {
    const Media media = MediaOf(known ? "known" : "unknown", 2, 3);
    RealNode writer(store_);
    writer.store->Inject({.op = StoreOp::kPut, .kind = FaultKind::kShortWrite, .count = 1});
    (void)writer.Have(media);
    (void)writer.Publish(media);
    ASSERT_TRUE(Stored(*store_, media));

    RealNode reader(store_);
    EXPECT_TRUE(reader.Lookup(media, known).claim);
    EXPECT_EQ(reader.corruptions(), 1);
    reader.WaitUntilIdle();
    EXPECT_FALSE(Stored(*store_, media)) << "the bad object keeps the good one out";
    (void)writer.Publish(media);
    EXPECT_TRUE(reader.Lookup(media, known).pin);
  }
}

// Memory that was used again while it was read: of two items one has other bytes, on each read.
TEST_F(IntegrityReports, AReadWithOtherBytesIsAMissAndItsNeighbourAHit) {
  const Media other = MediaOf("other", 2, 300);
  RealNode writer(store_);
  for (const Media& media : {media_, other}) {
    (void)writer.Have(media);
    (void)writer.Publish(media);
  }
  RealNode reader(store_);
  reader.store->Inject(
      {.op = StoreOp::kGet, .kind = FaultKind::kFlipByte, .key = media_.key.Text()});
  const Media both[] = {media_, other};
  std::vector<LookupAnswer> answers = reader.Lookup(both);
  EXPECT_TRUE(answers[0].claim);
  ASSERT_TRUE(answers[1].pin);
  EXPECT_EQ(CheckPin(other, answers[1].pin), "");
  EXPECT_EQ(reader.corruptions(), 1);
  EXPECT_EQ(reader.pool().ready, 2U);
  EXPECT_EQ(reader.pool().free, reader.pool().pages - 2);
  EXPECT_EQ(CheckPin(media_, reader.Finish(media_, std::move(answers[0].claim))), "");
}

// 138 rows under a key of which the caller knows that it has 638.
TEST_F(IntegrityReports, AnObjectOfAnotherLengthIsAMissAndIsDropped) {
  RealNode writer(store_);
  const Media stored = MediaOf("clip", 1, 138);
  (void)writer.Have(stored);
  (void)writer.Publish(stored);
  RealNode reader(store_);
  const Media wanted = MediaOf("clip", 1, 638);
  EXPECT_TRUE(reader.Lookup(wanted).claim);
  EXPECT_EQ(reader.corruptions(), 1);
  reader.WaitUntilIdle();
  EXPECT_FALSE(Stored(*store_, stored));
}

TEST_F(IntegrityReports, AHeldEntryOfAnotherLengthIsRefusedNotServed) {
  RealNode node(store_);
  (void)node.Have(MediaOf("clip", 1, 138));
  const LookupAnswer answer = node.Lookup(MediaOf("clip", 1, 638));
  EXPECT_FALSE(answer.pin);
  EXPECT_EQ(answer.status.code(), StatusCode::kInvalid);
  EXPECT_TRUE(node.Lookup(MediaOf("clip", 1, 138)).pin);
}

// Weights change: a new namespace, and the old one is still there.
TEST_F(IntegrityReports, NewWeightsNeverMeetTheEmbeddingsOfTheOldOnes) {
  NamespaceFields fields{.model_id = "model", .weights_digest = Sha256Of("r1")};
  EmbeddingSpec old_spec = SimSpec();
  old_spec.namespace_digest = NamespaceDigest(fields);
  fields.weights_digest = Sha256Of("r2");
  EmbeddingSpec new_spec = SimSpec();
  new_spec.namespace_digest = NamespaceDigest(fields);
  const Media old_media = MediaOf("photo", 1, 5, old_spec.namespace_digest);
  const Media new_media = MediaOf("photo", 2, 5, new_spec.namespace_digest);
  ASSERT_NE(old_media.key, new_media.key);

  RealNode first(store_);
  RealNode second(store_);
  (void)first.Finish(old_media,
                     std::move(first.Lookup(std::span(&old_media, 1), true, old_spec)[0].claim));
  (void)first.Publish(old_media);
  for (RealNode* node : {&first, &second}) {
    EXPECT_TRUE(node->Lookup(std::span(&new_media, 1), true, new_spec)[0].claim);
  }
  // A store that mixes the two up is found out by the trailer.
  std::vector<LookupAnswer> back = second.Lookup(std::span(&old_media, 1), true, old_spec);
  ASSERT_TRUE(back[0].pin);
  EXPECT_EQ(CheckRows(old_media, back[0].pin.buffers()), "");
  EXPECT_TRUE(first.controller->TryPin(old_media.key));
}

// Half-precision overflow: what an encoder got wrong is not for all nodes.
TEST_F(IntegrityReports, InfAndNanAreNotPublished) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    RealNode node(store_);
    LookupAnswer answer = node.Lookup(media_);
    ASSERT_TRUE(answer.claim.Reserve(media_.payload_bytes(), 0).ok());
    FillRows(media_, 0, media_.tokens, answer.claim.buffers());
    std::memcpy(answer.claim.buffers().back().data(), &bad, sizeof bad);
    const Result<Pin> pin = answer.claim.Commit(media_.tokens, "");
    ASSERT_TRUE(pin.ok()) << "the one who asked gets what there is";
    EXPECT_EQ(node.Publish(media_).new_count, 1U);
    EXPECT_EQ(node.metrics->nonfinite.Add({}).Value(), 1);
    EXPECT_EQ(node.store->Seen(StoreOp::kPut), 0U);
    EXPECT_FALSE(Stored(*store_, media_));
  }
}

// One front end believes that the other side has it; the other side has lost it.
TEST_F(IntegrityReports, AHitThatIsGoneWhenItIsReadIsACleanMiss) {
  RealNode writer(store_);
  (void)writer.Have(media_);
  (void)writer.Publish(media_);
  RealNode reader(store_);
  bool found = false;
  std::atomic<bool> answered{false};
  reader.controller->BatchIsExist(std::span(&media_.key, 1), SteadyClock().Now() + kPatience,
                                  [&](const std::vector<bool>& flags) {
                                    found = flags.front();
                                    answered = true;
                                  });
  RealNode::Await([&] { return answered.load(); });
  ASSERT_TRUE(found);
  const std::string key = media_.key.Text();
  const RemoveItem item{.key = key};
  (void)store_->BatchRemove(std::span(&item, 1), {});

  ASSERT_TRUE(reader.Prefetch("request", media_).ok());
  EXPECT_EQ(reader.WaitPrefetch("request"), PrefetchOutcome::kMissing);
  (void)reader.Have(media_);
  EXPECT_EQ(reader.computed, 1U);
  EXPECT_EQ(reader.Have(media_), Source::kLocal);
}

}  // namespace
}  // namespace embercache::simulation
