#include "src/cache/raw_store.h"

#include <gtest/gtest.h>

#include "embercache/key.h"
#include "src/cache/envelope.h"
#include "src/memory/page_pool.h"
#include "src/store/memory/memory_store.h"
#include "tests/support/global_cache_fixture.h"
#include "tests/support/stored_object.h"

// Payloads alone in the store, whole objects for the caches above.

namespace embercache {
namespace {

class RawStoreTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kTokens = 3;
  static constexpr uint64_t kPayloadBytes = kTokens * 1000 * 4;

  RawStoreTest() : payloads_(*CreateMemoryStore({})), raw_(payloads_) {
    payload_.resize(kPayloadBytes);
    const MutableBuffer buffer = payload_;
    FillWith(7, std::span(&buffer, 1));
  }

  // As entries of a pool have it: the payload's pages, padding included, and the trailer.
  struct Entry {
    Bytes pages = Bytes(PaddedBytes(kPayloadBytes), std::byte{0xAA});
    Bytes trailer = Bytes(kBlockBytes);
    std::vector<MutableBuffer> buffers() {
      return {MutableBuffer(pages).first(5000), MutableBuffer(pages).subspan(5000), trailer};
    }
  };
  GetResult Get(Entry& entry, const EmbeddingKey& key) {
    const std::string text = key.Text();
    const auto buffers = entry.buffers();
    const GetItem item{text, buffers};
    return raw_.BatchGetIntoMultiBuffers({&item, 1}, {}).at(0);
  }
  void PutPayload(const std::string& key, ConstBuffer payload) {
    const std::string_view text = key;
    ASSERT_EQ(payloads_->BatchPut({&text, 1}, {&payload, 1}, {}).at(0).outcome,
              PutOutcome::kStored);
  }

  const std::shared_ptr<EmbeddingStore> payloads_;
  RawStore raw_;
  Bytes payload_;
  const EmbeddingSpec spec_{.modality = Modality::kImage, .dtype = DType::kF32, .hidden = 1000};
  const EmbeddingKey key_ = EmbeddingKey::FromCallerHash(spec_.namespace_digest, "17");
};

TEST_F(RawStoreTest, APutStoresThePayloadAloneUnderTheHashAsItWasGiven) {
  raw_.Remember(key_, "17", spec_, 0);
  Entry entry;
  std::copy(payload_.begin(), payload_.end(), entry.pages.begin());
  Trailer trailer;
  trailer.info = {.key = key_, .spec = spec_, .tokens = kTokens};
  trailer.payload_bytes = kPayloadBytes;
  EncodeTrailer(trailer, entry.trailer);
  const auto buffers = entry.buffers();
  const std::vector<ConstBuffer> sources(buffers.begin(), buffers.end());
  const std::string text = key_.Text();
  const PutItem put{text, sources, PutMode::kIfAbsent};
  EXPECT_EQ(raw_.BatchPutFromMultiBuffers({&put, 1}, {}).at(0).outcome, PutOutcome::kStored);

  Bytes stored(kPayloadBytes);
  const std::string_view payload_key = "emb_17";
  const MutableBuffer target = stored;
  EXPECT_EQ(payloads_->BatchGet({&payload_key, 1}, {&target, 1}, {}).at(0).outcome,
            GetOutcome::kHit);
  EXPECT_EQ(stored, payload_);
  const std::string_view key = text;
  EXPECT_TRUE(raw_.BatchIsExist({&key, 1}, {}).at(0).found);
}

TEST_F(RawStoreTest, AGetGivesAWholeObject) {
  PutPayload("emb_17", payload_);
  raw_.Remember(key_, "17", spec_, kTokens);
  Entry entry;
  const GetResult got = Get(entry, key_);
  ASSERT_EQ(got.outcome, GetOutcome::kHit) << got.status.ToString();
  EXPECT_EQ(got.bytes, ObjectBytes(kPayloadBytes, 0));
  Trailer trailer;
  ASSERT_EQ(DecodeTrailer(entry.trailer, &trailer), TrailerVerdict::kGood);
  EXPECT_TRUE(CheckIdentity(trailer, key_, spec_, kTokens).ok());
  EXPECT_EQ(trailer.payload_bytes, kPayloadBytes);
  Bytes padded = payload_;
  padded.resize(PaddedBytes(kPayloadBytes));
  EXPECT_EQ(entry.pages, padded);
}

TEST_F(RawStoreTest, AnObjectOfAnotherLengthIsAMiss) {
  PutPayload("emb_17", ConstBuffer(payload_).first(kPayloadBytes - 4000));
  raw_.Remember(key_, "17", spec_, kTokens);
  Entry entry;
  EXPECT_EQ(Get(entry, key_).outcome, GetOutcome::kMiss);
}

TEST_F(RawStoreTest, AKeyWhoseHashOrSizeIsNotKnownIsRefused) {
  PutPayload("emb_17", payload_);
  Entry entry;
  EXPECT_EQ(Get(entry, key_).status.code(), StatusCode::kUnimplemented);
  raw_.Remember(key_, "17", spec_, 0);
  EXPECT_EQ(Get(entry, key_).status.code(), StatusCode::kUnimplemented);
  raw_.Remember(key_, "17", spec_, kTokens);
  raw_.Remember(key_, "17", spec_, 0);  // who does not know the size takes it from nobody
  EXPECT_EQ(Get(entry, key_).outcome, GetOutcome::kHit);
}

// A GlobalCache over a RawStore over the memory store.
class RawCacheTest : public GlobalCacheFixture {
 protected:
  RawCacheTest() { Over(raw_); }

  void Over(std::shared_ptr<EmbeddingStore> store) {
    cache_ = GlobalCache::Create(std::move(store), {}, get_, put_, timer_, &clock_, metrics_);
  }
  void PublishOne(uint64_t tokens) {
    raw_->Remember(TestKey(1), "1", TestSpec(), tokens);
    const Pin pin = Computed(1, tokens);
    Publish(pin);
    Settle();
  }

  std::shared_ptr<RawStore> raw_ = std::make_shared<RawStore>(memory_);
};

TEST_F(RawCacheTest, WhatWasPublishedAsAPayloadAloneIsFetchedWithItsRows) {
  PublishOne(5);
  const std::string_view key = "emb_1";
  EXPECT_EQ(memory_->BatchStat({&key, 1}, {}).at(0).bytes, 5 * kTestRowBytes);
  EXPECT_TRUE(Holds(1, FetchOne(1, 5), 5));
  EXPECT_EQ(Corruptions(), 0);
}

TEST_F(RawCacheTest, ATrailerWithoutAChecksumIsBelievedOfTheRawStoreItselfAlone) {
  PublishOne(5);
  Over(std::make_shared<HookStore>(raw_));
  EXPECT_EQ(FetchOne(1, 5).outcome, FetchOutcome::kMiss);
  EXPECT_EQ(Corruptions(), 1);
}

}  // namespace
}  // namespace embercache
