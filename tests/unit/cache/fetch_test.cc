#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/global_cache_fixture.h"

// What comes out of a store: only exactly what was asked for.

namespace embercache {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Three rows: a page with 1024 bytes of padding.
constexpr int64_t kRows = 3;
constexpr uint64_t kPaddingAt = 3 * kTestRowBytes;
constexpr uint64_t kTrailerAt = kBlockBytes;

class FetchTest : public GlobalCacheFixture {
 protected:
  void Store(uint64_t number, uint64_t tokens, const std::string& metadata = "") {
    WriteObject(*memory_, TestKey(number), MakeObject(number, TestInfo(number, tokens, metadata)));
  }

  // No pages are left with anybody.
  void TearDown() override {
    Settle();
    cache_.reset();
    host_.reset();
    EXPECT_EQ(pool_->Stats().free, kPages);
    EXPECT_EQ(pool_->Stats().trailer_blocks_free, kPages);
  }
};

TEST_F(FetchTest, AnObjectIsReadAtOnceWhereItsSizeIsKnown) {
  Store(1, 10, R"({"grid":[1,2,5]})");
  const FetchResult result = FetchOne(1, 10);
  EXPECT_TRUE(Holds(1, result, 10));
  EXPECT_EQ(result.metadata, R"({"grid":[1,2,5]})");
  EXPECT_EQ(store_->gets, 1);
  EXPECT_EQ(store_->stats, 0);
  EXPECT_EQ(Operations("get", "ok"), 1);
  EXPECT_EQ(Value(metrics_->store_bytes, {{"backend", "memory"}, {"op", "get"}}), 12288 + 4096);
}

TEST_F(FetchTest, AnUnknownSizeIsAskedForFirst) {
  Store(1, 10, "m");
  const FetchResult result = FetchOne(1, -1);
  EXPECT_TRUE(Holds(1, result, 10));
  EXPECT_EQ(result.metadata, "m");
  EXPECT_EQ(store_->gets, 1);
  EXPECT_EQ(store_->stats, 1);
}

TEST_F(FetchTest, WhatIsNotThereIsAMiss) {
  EXPECT_EQ(FetchOne(1, 10).outcome, FetchOutcome::kMiss);
  EXPECT_EQ(FetchOne(1, -1).outcome, FetchOutcome::kMiss);
  EXPECT_EQ(Operations("get", "miss"), 1);
  EXPECT_EQ(Operations("stat", "miss"), 1);
  EXPECT_EQ(Corruptions(), 0);
}

TEST_F(FetchTest, MetadataOfManyBlocksCostsASecondGetAndNoFailure) {
  for (const size_t bytes : {3072U, 3073U, 4096U, 4097U, 20000U}) {
    for (const int64_t tokens : {int64_t{10}, int64_t{-1}}) {
      SCOPED_TRACE(testing::Message() << bytes << " bytes, tokens " << tokens);
      Store(1, 10, std::string(bytes, 'm'));
      store_->gets = 0;
      const FetchResult result = FetchOne(1, tokens);
      EXPECT_TRUE(Holds(1, result, 10));
      EXPECT_EQ(result.metadata, std::string(bytes, 'm'));
      EXPECT_EQ(store_->gets, bytes > 3072 ? 2 : 1);
    }
  }
  EXPECT_EQ(Corruptions(), 0);
  EXPECT_EQ(Operations("get", "error"), 0);
  EXPECT_FALSE(cache_->get_stats().breaker_open);
}

TEST_F(FetchTest, AStoreThatCannotTellTheSizeIsAskedForIt) {
  Store(1, 10, std::string(4000, 'm'));
  store_->on_get = [](std::vector<GetResult>& results) {
    for (GetResult& result : results) {
      if (result.outcome == GetOutcome::kWrongSize) result.bytes = 0;
    }
  };
  EXPECT_TRUE(Holds(1, FetchOne(1, 10), 10));
  EXPECT_EQ(store_->stats, 1);
}

TEST_F(FetchTest, ABatchOfAllKindsIsOneGet) {
  for (const uint64_t number : {1U, 2U, 4U}) Store(number, number * 3);
  std::vector<FetchItem> items;
  items.push_back(Item(1, 3));
  items.push_back(Item(2, -1));
  items.push_back(Item(3, 9));
  items.push_back(Item(4, -1));
  items.push_back(Item(5, -1));
  std::vector<FetchResult> results;
  Fetch(std::move(items), &results);
  get_->RunAll();
  ASSERT_EQ(results.size(), 5U);
  EXPECT_TRUE(Holds(1, results[0], 3));
  EXPECT_TRUE(Holds(2, results[1], 6));
  EXPECT_EQ(results[2].outcome, FetchOutcome::kMiss);
  EXPECT_TRUE(Holds(4, results[3], 12));
  EXPECT_EQ(results[4].outcome, FetchOutcome::kMiss);
  EXPECT_EQ(store_->stats, 1);
  EXPECT_EQ(store_->gets, 1);
}

TEST_F(FetchTest, WithoutRoomAnItemIsReportedAndTheOthersAreHits) {
  Store(1, 8);
  Store(2, kPages * 4 + 1);
  std::vector<FetchItem> items;
  items.push_back(Item(1, -1));
  items.push_back(Item(2, -1));
  std::vector<FetchResult> results;
  Fetch(std::move(items), &results);
  get_->RunAll();
  EXPECT_TRUE(Holds(1, results[0], 8));
  EXPECT_EQ(results[1].outcome, FetchOutcome::kNoRoom);
}

struct Damage {
  const char* name;
  std::function<void(Bytes&)> apply;
};

Damage Flip(const char* name, size_t at) {
  return {name, [at](Bytes& bytes) { bytes[at] ^= std::byte{1}; }};
}

// Another valid object in the place of the one that was asked for.
Damage Other(const char* name, const std::function<void(EmbeddingInfo&)>& change) {
  return {name, [change](Bytes& bytes) {
            EmbeddingInfo info = TestInfo(1, kRows);
            change(info);
            bytes = MakeObject(1, info);
          }};
}

std::vector<Damage> AllDamages() {
  return {
      Flip("first payload byte", 0),
      Flip("last payload byte", kPaddingAt - 1),
      Flip("first byte of padding", kPaddingAt),
      Flip("last byte of padding", kTrailerAt - 1),
      Flip("flags", kTrailerAt + 10),
      Flip("trailer blocks", kTrailerAt + 12),
      Flip("namespace", kTrailerAt + 16),
      Flip("key", kTrailerAt + 48),
      Flip("dtype", kTrailerAt + 80),
      Flip("hidden", kTrailerAt + 84),
      Flip("tokens", kTrailerAt + 88),
      Flip("payload bytes", kTrailerAt + 96),
      Flip("payload checksum", kTrailerAt + 104),
      Flip("created", kTrailerAt + 120),
      Flip("reserved", kTrailerAt + 130),
      Flip("metadata bytes", kTrailerAt + 160),
      Flip("own checksum", kTrailerAt + 1008),
      Flip("metadata", kTrailerAt + 1024),
      Flip("last byte", kTrailerAt + kBlockBytes - 1),
      {"a block short", [](Bytes& bytes) { bytes.erase(bytes.end() - kBlockBytes, bytes.end()); }},
      {"a byte short", [](Bytes& bytes) { bytes.pop_back(); }},
      {"empty", [](Bytes& bytes) { bytes.clear(); }},
      {"a byte longer", [](Bytes& bytes) { bytes.emplace_back(); }},
      {"payload alone", [](Bytes& bytes) { bytes.resize(kPaddingAt); }},
      {"a block more in front", [](Bytes& bytes) { bytes.insert(bytes.begin(), 4096, {}); }},
      {"zeros", [](Bytes& bytes) { std::fill(bytes.begin(), bytes.end(), std::byte{0}); }},
      {"zeros for the payload",
       [](Bytes& bytes) { std::fill_n(bytes.begin(), kPaddingAt, std::byte{0}); }},
      Other("another key's object", [](EmbeddingInfo& info) { info.key = TestKey(2); }),
      Other("another namespace's",
            [](EmbeddingInfo& info) { info.spec.namespace_digest = Sha256Of("other"); }),
      Other("another modality's",
            [](EmbeddingInfo& info) { info.spec.modality = Modality::kVideo; }),
      Other("integers", [](EmbeddingInfo& info) { info.spec.dtype = DType::kI32; }),
      Other("of half the width",
            [](EmbeddingInfo& info) {
              info.spec.hidden /= 2;
              info.tokens *= 2;
            }),
  };
}

TEST_F(FetchTest, ADamagedObjectIsCountedReadTwiceRemovedAndNeverServed) {
  for (const Damage& damage : AllDamages()) {
    for (const int64_t tokens : {kRows, int64_t{-1}}) {
      SCOPED_TRACE(testing::Message() << damage.name << ", tokens " << tokens);
      Make({});
      Bytes bytes = MakeObject(1, TestInfo(1, kRows));
      damage.apply(bytes);
      WriteObject(*memory_, TestKey(1), bytes);
      EXPECT_EQ(FetchOne(1, tokens).outcome, FetchOutcome::kMiss);
      EXPECT_EQ(Corruptions(), 1);
      EXPECT_EQ(Incompatible(), 0);
      EXPECT_TRUE(store_->gets >= 2 || (store_->stats == 2 && store_->gets == 0))
          << store_->gets << " gets, " << store_->stats << " stats";
      EXPECT_TRUE(ReadObject(*memory_, TestKey(1)));
      put_->RunAll();
      EXPECT_FALSE(ReadObject(*memory_, TestKey(1))) << "it was not removed";
      EXPECT_EQ(Operations("remove", "ok"), 1);
      EXPECT_EQ(pool_->Stats().free, kPages);
      EXPECT_FALSE(cache_->get_stats().breaker_open);
    }
  }
}

TEST_F(FetchTest, WhereBackendsHaveNoVersionsABadObjectIsReplacedByTheNextPublication) {
  for (const Damage& damage : AllDamages()) {
    SCOPED_TRACE(damage.name);
    Make({});
    store_->on_get = [](std::vector<GetResult>& results) { results.front().version.reset(); };
    store_->on_stat = [](std::vector<StatResult>& results) { results.front().version.reset(); };
    const Pin pin = Computed(1, kRows);
    Bytes bytes = MakeObject(1, TestInfo(1, kRows));
    damage.apply(bytes);
    WriteObject(*memory_, TestKey(1), bytes);
    EXPECT_EQ(FetchOne(1, kRows).outcome, FetchOutcome::kMiss);
    put_->RunAll();
    EXPECT_EQ(ReadObject(*memory_, TestKey(1)), bytes) << "what it is cannot be known to stay";
    Publish(pin);
    put_->RunAll();
    EXPECT_EQ(Published("stored"), 1);
    EXPECT_TRUE(Holds(1, FetchOne(1, kRows), kRows));
    Publish(pin);
    put_->RunAll();
    EXPECT_EQ(Published("already_present"), 1) << "it is not bad any more";
  }
}

TEST_F(FetchTest, AnObjectThatTheBackendItselfFindsDamagedIsReplacedByTheNextPublication) {
  const Status damaged = Status::Corruption("the backend's head is damaged");
  for (const int64_t tokens : {kRows, int64_t{-1}}) {
    SCOPED_TRACE(testing::Message() << "tokens " << tokens);
    Make({});
    store_->on_get = [&](std::vector<GetResult>& results) {
      results.front() = {.status = damaged};
    };
    store_->on_stat = [&](std::vector<StatResult>& results) {
      results.front() = {.status = damaged};
    };
    const Pin pin = Computed(1, kRows);
    Store(1, kRows);
    EXPECT_EQ(FetchOne(1, tokens).outcome, FetchOutcome::kMiss);
    EXPECT_EQ(store_->gets + store_->stats, 2) << "it was not read again";
    EXPECT_EQ(Corruptions(), 1);
    EXPECT_FALSE(cache_->get_stats().breaker_open);
    store_->on_get = nullptr;
    Publish(pin);
    put_->RunAll();
    EXPECT_EQ(Published("stored"), 1);
    EXPECT_TRUE(Holds(1, FetchOne(1, kRows), kRows));
  }
}

TEST_F(FetchTest, AReadThatGoesWrongOnceIsReadAgain) {
  Store(1, kRows);
  for (const int64_t tokens : {kRows, int64_t{-1}}) {
    faults_->Inject({.op = StoreOp::kGet, .kind = FaultKind::kFlipByte, .count = 1});
    EXPECT_TRUE(Holds(1, FetchOne(1, tokens), kRows));
  }
  faults_->Inject({.op = StoreOp::kGet, .kind = FaultKind::kLyingRead, .count = 1});
  EXPECT_TRUE(Holds(1, FetchOne(1, kRows), kRows));
  faults_->Inject({.op = StoreOp::kStat, .kind = FaultKind::kPhantom, .count = 1});
  EXPECT_TRUE(Holds(1, FetchOne(1, -1), kRows)) << "the stat told a wrong size";
  EXPECT_GE(Corruptions(), 2);
  put_->RunAll();
  EXPECT_EQ(store_->removes, 0);
  EXPECT_TRUE(ReadObject(*memory_, TestKey(1)));
}

TEST_F(FetchTest, AnyBitThatFlipsOnTheWayIsNeverServed) {
  Store(1, kRows, R"({"grid":[1,1,3]})");
  faults_ = std::make_shared<FaultyStore>(memory_, /*seed=*/5);
  store_ = std::make_shared<HookStore>(faults_);
  cache_ = GlobalCache::Create(store_, {}, get_, put_, timer_, &clock_, metrics_);
  faults_->Inject({.op = StoreOp::kGet, .kind = FaultKind::kFlipByte, .probability = 0.7});
  int hits = 0;
  for (int i = 0; i < 300; ++i) {
    const FetchResult result = FetchOne(1, i % 2 == 0 ? kRows : -1);
    if (result.outcome == FetchOutcome::kHit) {
      ++hits;
      ASSERT_TRUE(Holds(1, result, kRows));
      ASSERT_EQ(result.metadata, R"({"grid":[1,1,3]})");
    }
  }
  EXPECT_GT(hits, 50);
}

TEST_F(FetchTest, ObjectsOfOtherOriginsAreMissesAndLeftAlone) {
  const std::vector<Damage> foreign = {
      Flip("magic", kTrailerAt),
      {"version", [](Bytes& bytes) { bytes[kTrailerAt + 8] = std::byte{2}; }},
  };
  for (const Damage& damage : foreign) {
    for (const int64_t tokens : {kRows, int64_t{-1}}) {
      SCOPED_TRACE(testing::Message() << damage.name << ", tokens " << tokens);
      Make({});
      const Pin pin = Computed(1, kRows);
      Bytes bytes = MakeObject(1, TestInfo(1, kRows));
      damage.apply(bytes);
      WriteObject(*memory_, TestKey(1), bytes);
      EXPECT_EQ(FetchOne(1, tokens).outcome, FetchOutcome::kMiss);
      EXPECT_EQ(Incompatible(), 1);
      EXPECT_EQ(Corruptions(), 0);
      put_->RunAll();
      Publish(pin);
      put_->RunAll();
      EXPECT_EQ(ReadObject(*memory_, TestKey(1)), bytes);
      EXPECT_EQ(Published("already_present"), 1);
    }
  }
}

TEST_F(FetchTest, AnotherNumberOfRowsThanExpectedIsAMiss) {
  for (const int64_t tokens : {1, 2, 4, 5, 100}) {
    SCOPED_TRACE(tokens);
    Make({});
    Store(1, kRows);
    EXPECT_EQ(FetchOne(1, tokens).outcome, FetchOutcome::kMiss);
    EXPECT_EQ(Corruptions(), 1);
  }
}

TEST_F(FetchTest, UnknownShapesAreTakenOnlyWhereTheRowsAreExpected) {
  const auto store_unknown = [this] {
    Bytes bytes = MakeObject(1, TestInfo(1, kRows));
    const ConstBuffer payload = ConstBuffer(bytes).first(kPaddingAt);
    EncodeTrailer({.info = TestInfo(1, kRows),
                   .payload_bytes = kPaddingAt,
                   .checksum = ChecksumOf(std::span(&payload, 1)),
                   .shape_unknown = true},
                  MutableBuffer(bytes).last(kBlockBytes));
    WriteObject(*memory_, TestKey(1), bytes);
  };
  store_unknown();
  EXPECT_TRUE(Holds(1, FetchOne(1, kRows), kRows));
  EXPECT_EQ(FetchOne(1, -1).outcome, FetchOutcome::kMiss);
  store_unknown();
  EXPECT_EQ(FetchOne(1, kRows - 1).outcome, FetchOutcome::kMiss);
}

TEST_F(FetchTest, WhatReplacedABadObjectBeforeItsRemovalStays) {
  Bytes bytes = MakeObject(1, TestInfo(1, kRows));
  bytes[0] ^= std::byte{1};
  WriteObject(*memory_, TestKey(1), bytes);
  EXPECT_EQ(FetchOne(1, kRows).outcome, FetchOutcome::kMiss);
  Store(1, kRows);  // another node's
  put_->RunAll();
  EXPECT_EQ(Operations("remove", "miss"), 1);
  EXPECT_TRUE(Holds(1, FetchOne(1, kRows), kRows));
}

TEST_F(FetchTest, AKeyWhoseObjectIsReadWellIsNotBadAnyMore) {
  store_->on_get = [](std::vector<GetResult>& results) { results.front().version.reset(); };
  const Pin pin = Computed(1, kRows);
  Bytes bytes = MakeObject(1, TestInfo(1, kRows));
  bytes[0] ^= std::byte{1};
  WriteObject(*memory_, TestKey(1), bytes);
  EXPECT_EQ(FetchOne(1, kRows).outcome, FetchOutcome::kMiss);
  Store(1, kRows);  // another node's
  EXPECT_TRUE(Holds(1, FetchOne(1, kRows), kRows));
  Publish(pin);
  put_->RunAll();
  EXPECT_EQ(Published("already_present"), 1) << "there is nothing to replace";
}

TEST_F(FetchTest, RemovalsAreRateLimitedAndPublicationReplacesTheRest) {
  const Pin second = Computed(2, kRows);
  for (const uint64_t number : {1U, 2U, 3U}) {
    Bytes bytes = MakeObject(number, TestInfo(number, kRows));
    bytes[0] ^= std::byte{1};
    WriteObject(*memory_, TestKey(number), bytes);
  }
  EXPECT_EQ(FetchOne(1, kRows).outcome, FetchOutcome::kMiss);
  EXPECT_EQ(FetchOne(2, kRows).outcome, FetchOutcome::kMiss);
  put_->RunAll();
  EXPECT_EQ(store_->removes, 1);
  Advance(milliseconds(100));
  EXPECT_EQ(FetchOne(3, kRows).outcome, FetchOutcome::kMiss);
  put_->RunAll();
  EXPECT_EQ(store_->removes, 2);
  Publish(second);
  put_->RunAll();
  EXPECT_TRUE(Holds(2, FetchOne(2, kRows), kRows));
}

TEST_F(FetchTest, ItemsThatFailLeaveTheOthersHits) {
  for (const uint64_t number : {1U, 2U, 3U}) Store(number, 4);
  faults_->Inject({.op = StoreOp::kGet, .kind = FaultKind::kError, .key = TestKey(2).Text()});
  std::vector<FetchItem> items;
  for (const uint64_t number : {1U, 2U, 3U}) items.push_back(Item(number, 4));
  std::vector<FetchResult> results;
  Fetch(std::move(items), &results);
  get_->RunAll();
  EXPECT_TRUE(Holds(1, results[0], 4));
  EXPECT_EQ(results[1].outcome, FetchOutcome::kFailed);
  EXPECT_TRUE(Holds(3, results[2], 4));
  EXPECT_EQ(Operations("get", "error"), 1);
}

TEST_F(FetchTest, ResultsShorterOrLongerThanAskedAreSurvived) {
  for (const uint64_t number : {1U, 2U}) Store(number, 4);
  for (const int64_t tokens : {int64_t{4}, int64_t{-1}}) {
    for (const StoreOp op : {StoreOp::kGet, StoreOp::kStat}) {
      faults_->Clear();
      faults_->Inject({.op = op, .kind = FaultKind::kFewResults});
      std::vector<FetchItem> items;
      items.push_back(Item(1, tokens));
      items.push_back(Item(2, tokens));
      std::vector<FetchResult> results;
      Fetch(std::move(items), &results);
      get_->RunAll();
      ASSERT_EQ(results.size(), 2U);
      EXPECT_TRUE(Holds(1, results[0], 4));
      const bool asked = op == StoreOp::kGet || tokens < 0;
      EXPECT_EQ(results[1].outcome, asked ? FetchOutcome::kFailed : FetchOutcome::kHit);
    }
  }
  faults_->Clear();
  store_->on_get = [](std::vector<GetResult>& results) { results.resize(results.size() + 3); };
  store_->on_stat = [](std::vector<StatResult>& results) { results.resize(results.size() + 3); };
  EXPECT_TRUE(Holds(1, FetchOne(1, -1), 4));
  store_->on_get = [](std::vector<GetResult>& results) { results.clear(); };
  EXPECT_EQ(FetchOne(1, 4).outcome, FetchOutcome::kFailed);
}

TEST_F(FetchTest, AStoreThatThrowsIsAFailureOfItsItems) {
  Store(1, 4);
  for (const StoreOp op : {StoreOp::kStat, StoreOp::kGet}) {
    const size_t rule = faults_->Inject({.op = op, .kind = FaultKind::kThrow, .count = 1});
    EXPECT_EQ(FetchOne(1, -1).outcome, FetchOutcome::kFailed);
    EXPECT_EQ(faults_->Struck(rule), 1U);
    EXPECT_TRUE(Holds(1, FetchOne(1, -1), 4));
  }
  EXPECT_EQ(Operations("stat", "error"), 1);
  EXPECT_EQ(Operations("get", "error"), 1);
}

TEST_F(FetchTest, AHitOfTheWrongLengthIsAFailure) {
  Store(1, 4);
  store_->on_get = [](std::vector<GetResult>& results) { results.front().bytes -= 4096; };
  EXPECT_EQ(FetchOne(1, 4).outcome, FetchOutcome::kFailed);
}

TEST_F(FetchTest, AHangingStoreIsAnsweredForAndKeepsItsPagesUntilItReturns) {
  Store(1, 8);
  faults_->Inject({.op = StoreOp::kGet, .kind = FaultKind::kHang});
  std::vector<FetchItem> items;
  items.push_back(Item(1, 8));
  std::weak_ptr<Block> block = items.front().block;
  std::vector<FetchResult> results;
  Fetch(std::move(items), &results, milliseconds(500));
  std::thread worker([&] { get_->RunAll(); });
  ASSERT_TRUE(faults_->WaitUntilHanging(1, SteadyClock().Now() + seconds(100)));
  Advance(milliseconds(500));
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].outcome, FetchOutcome::kFailed);
  EXPECT_EQ(Operations("get", "timeout"), 1);
  EXPECT_FALSE(block.expired()) << "the store may still write to it";
  EXPECT_EQ(pool_->Stats().free, kPages - 2);
  faults_->Release();
  worker.join();
  EXPECT_TRUE(block.expired());
  EXPECT_EQ(pool_->Stats().free, kPages);
}

TEST_F(FetchTest, WhenAQuarterOfThePoolIsInQuarantineFetchesAreAnsweredAtOnce) {
  std::vector<std::shared_ptr<Block>> late;
  late.push_back(Allocate(kPages / 4 * kBlockBytes, 1).value());
  late.back()->Quarantine();
  Store(1, 4);
  EXPECT_TRUE(Holds(1, FetchOne(1, 4), 4)) << "a quarter is not more than a quarter";
  late.push_back(Allocate(1, 1).value());
  late.back()->Quarantine();
  std::vector<FetchItem> items;
  items.push_back(Item(1, -1));
  std::vector<FetchResult> results;
  Fetch(std::move(items), &results);
  ASSERT_EQ(results.size(), 1U) << "answered at once";
  EXPECT_EQ(results[0].outcome, FetchOutcome::kFailed);
  EXPECT_EQ(Operations("get", "refused"), 1);
  late.clear();
  EXPECT_TRUE(Holds(1, FetchOne(1, -1), 4));
}

TEST_F(FetchTest, AnOpenBreakerAnswersAtOnceAndIsCountedAsRefused) {
  Make({.get = {.breaker_failures = 2}});
  faults_->Inject({.op = StoreOp::kGet, .kind = FaultKind::kError});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(FetchOne(1, 4).outcome, FetchOutcome::kFailed);
  EXPECT_TRUE(cache_->get_stats().breaker_open);
  EXPECT_EQ(FetchOne(1, 4).outcome, FetchOutcome::kFailed);
  EXPECT_EQ(store_->gets, 2);
  EXPECT_EQ(Operations("get", "refused"), 1);
}

TEST_F(FetchTest, OneItemOfABatchThatIsAnsweredKeepsTheBreakerClosed) {
  Make({.get = {.breaker_failures = 1}});
  Store(1, 4);
  faults_->Inject({.op = StoreOp::kGet, .kind = FaultKind::kError, .key = TestKey(2).Text()});
  std::vector<FetchItem> items;
  items.push_back(Item(1, 4));
  items.push_back(Item(2, 4));
  std::vector<FetchResult> results;
  Fetch(std::move(items), &results);
  get_->RunAll();
  EXPECT_FALSE(cache_->get_stats().breaker_open);
}

TEST_F(FetchTest, ItemsOfUnknownSizeTakeRoomInTheQueue) {
  Make({.get = {.workers = 2, .max_queued_bytes = uint64_t{5} << 20}});
  std::vector<std::vector<FetchResult>> results(5);
  for (auto& each : results) {
    std::vector<FetchItem> items;
    items.push_back(Item(1, -1));
    Fetch(std::move(items), &each);
  }
  EXPECT_EQ(cache_->get_stats().running, 1U) << "each may be large";
  EXPECT_EQ(cache_->get_stats().queued, 2U);
  EXPECT_EQ(results[3].size() + results[4].size(), 2U) << "refused at once";
  get_->RunAll();
  for (auto& each : results) EXPECT_EQ(each.size(), 1U);
}

}  // namespace
}  // namespace embercache
