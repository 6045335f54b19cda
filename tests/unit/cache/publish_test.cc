#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "tests/support/global_cache_fixture.h"

// What goes into a store, and what is remembered of it.

namespace embercache {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

using PublishTest = GlobalCacheFixture;

std::vector<Pin> Pins(std::initializer_list<const Pin*> pins) {
  std::vector<Pin> shared;
  for (const Pin* pin : pins) shared.push_back(pin->Share());
  return shared;
}

TEST_F(PublishTest, WhatOneNodePublishesAnotherReads) {
  for (const size_t metadata : {0U, 5000U}) {
    Make({});
    const Pin pin = Computed(1, 10, std::string(metadata, 'm'));
    Publish(pin);
    put_->RunAll();
    EXPECT_EQ(Published("stored"), 1);
    const FetchResult result = FetchOne(1, 10);
    EXPECT_TRUE(Holds(1, result, 10));
    EXPECT_EQ(result.metadata, std::string(metadata, 'm'));
    EXPECT_EQ(Value(metrics_->store_bytes, {{"backend", "memory"}, {"op", "put"}}),
              static_cast<double>(ObjectBytes(10 * kTestRowBytes, metadata)));
  }
}

TEST_F(PublishTest, AFetchedEmbeddingIsPublishedByteForByteAsItWas) {
  Bytes object = MakeObject(1, TestInfo(1, 3, "m"));
  WriteObject(*memory_, TestKey(1), object);
  HostCache::Lookup found = host_->FindOrClaim(TestKey(1), TestSpec(), 0, nullptr);
  ASSERT_TRUE(found.claim.Reserve(3 * kTestRowBytes, 0).ok());
  std::vector<FetchItem> items;
  items.push_back({.key = TestKey(1),
                   .expected_tokens = 3,
                   .block = ClaimAccess::block(found.claim),
                   .reserve = nullptr});
  std::vector<FetchResult> results;
  Fetch(std::move(items), &results);
  get_->RunAll();
  ASSERT_EQ(results[0].outcome, FetchOutcome::kHit);
  results[0].block.reset();
  const Pin pin =
      ClaimAccess::CommitFetched(found.claim, results[0].tokens, results[0].metadata).value();
  EXPECT_TRUE(embercache::Holds(1, pin, 3));
  const std::string text = TestKey(1).Text();
  const RemoveItem item{.key = text};
  ASSERT_EQ(memory_->BatchRemove(std::span(&item, 1), {}).front().outcome, RemoveOutcome::kRemoved);
  Publish(pin);
  put_->RunAll();
  EXPECT_EQ(ReadObject(*memory_, TestKey(1)), object);
}

TEST_F(PublishTest, OneCallIsOnePutAndEachItemIsCounted) {
  WriteObject(*memory_, TestKey(2), MakeObject(2, TestInfo(2, 4)));
  faults_->Inject({.op = StoreOp::kPut, .kind = FaultKind::kError, .key = TestKey(3).Text()});
  const Pin one = Computed(1, 4), two = Computed(2, 4), three = Computed(3, 4);
  cache_->Publish(Pins({&one, &two, &three}), clock_.Now() + seconds(1));
  put_->RunAll();
  EXPECT_EQ(store_->puts, 1);
  EXPECT_EQ(Published("stored"), 1);
  EXPECT_EQ(Published("already_present"), 1);
  EXPECT_EQ(Published("failed"), 1);
  EXPECT_EQ(Operations("put", "ok"), 2);
  EXPECT_EQ(Operations("put", "error"), 1);
  EXPECT_EQ(cache_->put_stats().running, 0U);
}

TEST_F(PublishTest, AShortOrThrowingPutFailsTheItemsWithoutAnAnswer) {
  const Pin one = Computed(1, 4), two = Computed(2, 4);
  faults_->Inject({.op = StoreOp::kPut, .kind = FaultKind::kFewResults, .count = 2});
  cache_->Publish(Pins({&one, &two}), clock_.Now() + seconds(1));
  put_->RunAll();
  EXPECT_EQ(Published("stored"), 1);
  EXPECT_EQ(Published("failed"), 1);
  faults_->Inject({.op = StoreOp::kPut, .kind = FaultKind::kThrow, .count = 2});
  cache_->Publish(Pins({&one, &two}), clock_.Now() + seconds(1));
  put_->RunAll();
  EXPECT_EQ(Published("failed"), 3);
}

TEST_F(PublishTest, PinsAreHeldUntilTheStoreHasReturned) {
  faults_->Inject({.op = StoreOp::kPut, .kind = FaultKind::kHang});
  Computed(1, 4).Release();
  {
    const Pin pin = host_->TryPin(TestKey(1));
    Publish(pin, milliseconds(500));
  }
  std::thread worker([&] { put_->RunAll(); });
  ASSERT_TRUE(faults_->WaitUntilHanging(1, SteadyClock().Now() + seconds(100)));
  Advance(milliseconds(500));
  EXPECT_EQ(Published("failed"), 1);
  EXPECT_EQ(host_->Stats(0).pinned, 1U) << "the store may still read it";
  faults_->Release();
  worker.join();
  EXPECT_EQ(host_->Stats(0).pinned, 0U);
}

TEST_F(PublishTest, NaNAndInfAreNotPublished) {
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(),
                       -std::numeric_limits<float>::infinity()};
  for (const float value : bad) {
    for (const bool allowed : {false, true}) {
      Make({.publish_nonfinite = allowed});
      const Pin good = Computed(1, 4);
      const Pin pin = Computed(2, 4);
      // The last element; the test's own way in.
      const ConstBuffer last = pin.buffers().back();
      std::memcpy(const_cast<std::byte*>(last.data()) + last.size() - 4, &value, 4);
      cache_->Publish(Pins({&good, &pin}), clock_.Now() + seconds(1));
      put_->RunAll();
      EXPECT_TRUE(ReadObject(*memory_, TestKey(1)));
      EXPECT_EQ(ReadObject(*memory_, TestKey(2)).has_value(), allowed);
      EXPECT_EQ(Value(metrics_->nonfinite, {}), allowed ? 0 : 1);
      EXPECT_EQ(Published("failed"), allowed ? 0 : 1);
    }
  }
}

TEST_F(PublishTest, ABatchWithNothingToPublishSaysNothingAboutTheStore) {
  Make({.put = {.breaker_failures = 1, .open_for = seconds(1)}});
  faults_->Inject({.op = StoreOp::kPut, .kind = FaultKind::kError, .count = 1});
  const Pin good = Computed(1, 4), bad = Computed(2, 4);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(const_cast<std::byte*>(bad.buffers().back().data()), &nan, 4);
  Publish(good);
  put_->RunAll();
  ASSERT_TRUE(cache_->put_stats().breaker_open);
  Advance(milliseconds(1250));
  Publish(bad);
  put_->RunAll();
  EXPECT_TRUE(cache_->put_stats().breaker_open);
  Publish(good);
  put_->RunAll();
  EXPECT_FALSE(cache_->put_stats().breaker_open);
}

TEST_F(PublishTest, AConfirmedPublicationNeedNotAskAgainForAWhile) {
  Make({.publish_confirm = seconds(100)});
  const Pin pin = Computed(1, 4);
  Publish(pin);
  put_->RunAll();
  Advance(seconds(74));
  Publish(pin);
  put_->RunAll();
  EXPECT_EQ(store_->puts, 1);
  EXPECT_EQ(Published("already_present"), 1);
  Advance(seconds(52));
  Publish(pin);
  put_->RunAll();
  EXPECT_EQ(store_->puts, 2);
}

TEST_F(PublishTest, ConfirmationsAreJittered) {
  Make({.publish_confirm = seconds(100)});
  std::vector<Pin> pins;
  for (uint64_t number = 0; number < 20; ++number) pins.push_back(Computed(number, 1));
  const auto publish = [&] {
    std::vector<Pin> shared;
    for (const Pin& pin : pins) shared.push_back(pin.Share());
    cache_->Publish(std::move(shared), clock_.Now() + seconds(1));
    put_->RunAll();
    return faults_->Seen(StoreOp::kPut);
  };
  EXPECT_EQ(publish(), 20U);
  Advance(seconds(100));
  const uint64_t asked = publish() - 20;
  EXPECT_GT(asked, 3U);
  EXPECT_LT(asked, 17U);
}

TEST_F(PublishTest, WithoutAnIntervalTheStoreIsAlwaysAsked) {
  const Pin pin = Computed(1, 4);
  for (int i = 1; i <= 3; ++i) {
    Publish(pin);
    put_->RunAll();
    EXPECT_EQ(store_->puts, i);
  }
  EXPECT_EQ(Published("already_present"), 2);
}

TEST_F(PublishTest, ConfirmationsAreForgottenWhenTheBreakerCloses) {
  for (const bool by_get : {false, true}) {
    Make({.get = {.breaker_failures = 1, .open_for = seconds(1)},
          .put = {.breaker_failures = 1, .open_for = seconds(1)},
          .publish_confirm = seconds(1000)});
    const Pin pin = Computed(1, 4), other = Computed(2, 4);
    Publish(pin);
    put_->RunAll();
    faults_->Inject(
        {.op = by_get ? StoreOp::kGet : StoreOp::kPut, .kind = FaultKind::kError, .count = 1});
    const auto touch = [&] {
      if (by_get) {
        FetchOne(9, 4);
      } else {
        Publish(other);
        put_->RunAll();
      }
    };
    touch();
    Publish(pin);
    EXPECT_EQ(put_->RunAll(), 0U) << "still confirmed";
    Advance(milliseconds(1250));
    touch();
    const int puts = store_->puts;
    Publish(pin);
    put_->RunAll();
    EXPECT_EQ(store_->puts, puts + 1);
  }
}

TEST_F(PublishTest, ConfirmationsAreForgottenInANewEraOfTheStore) {
  Make({.publish_confirm = seconds(1000)});
  const Pin pin = Computed(1, 4);
  for (int puts = 1; puts <= 3; ++puts) {
    for (int again = 0; again < 2; ++again) {
      Publish(pin);
      put_->RunAll();
      EXPECT_EQ(store_->puts, puts);
    }
    ++store_->era;
  }
}

TEST_F(PublishTest, AConfirmedKeyThatIsMissedMakesAllBeAskedAgain) {
  for (const bool by_exist : {false, true}) {
    Make({.publish_confirm = seconds(1000)});
    const Pin lost = Computed(1, 4), other = Computed(2, 4);
    cache_->Publish(Pins({&lost, &other}), clock_.Now() + seconds(1));
    put_->RunAll();
    const auto look = [&](uint64_t number) {
      if (!by_exist) return void(FetchOne(number, 4));
      cache_->Exist({TestKey(number)}, clock_.Now() + seconds(1), [](const auto&) {});
      get_->RunAll();
    };
    look(3);
    Publish(other);
    put_->RunAll();
    EXPECT_EQ(store_->puts, 1) << "nobody had confirmed what was missed";
    const std::string text = TestKey(1).Text();
    const RemoveItem item{.key = text};
    ASSERT_EQ(memory_->BatchRemove(std::span(&item, 1), {})[0].outcome, RemoveOutcome::kRemoved);
    look(1);
    Publish(other);
    put_->RunAll();
    EXPECT_EQ(store_->puts, 2);
  }
}

TEST_F(PublishTest, AConfirmationHoldsForHalfTheTimeThatObjectsLive) {
  Make({.publish_confirm = seconds(1000)});
  store_->time_to_live = seconds(60);
  const Pin pin = Computed(1, 4);
  Publish(pin);
  put_->RunAll();
  Advance(seconds(29));
  Publish(pin);
  put_->RunAll();
  EXPECT_EQ(store_->puts, 1);
  Advance(seconds(2));
  Publish(pin);
  put_->RunAll();
  EXPECT_EQ(store_->puts, 2);
}

TEST_F(PublishTest, AfterARemovalTheStoreIsAskedAgain) {
  Make({.publish_confirm = seconds(1000)});
  const Pin pin = Computed(1, 4);
  Publish(pin);
  put_->RunAll();
  RemoveResult removed;
  cache_->Remove(TestKey(1), clock_.Now() + seconds(1),
                 [&](RemoveResult result) { removed = result; });
  put_->RunAll();
  EXPECT_EQ(removed.outcome, RemoveOutcome::kRemoved);
  Publish(pin);
  put_->RunAll();
  EXPECT_TRUE(ReadObject(*memory_, TestKey(1)));
}

TEST_F(PublishTest, APutThatARemovalOvertakesConfirmsNothing) {
  Make({.publish_confirm = seconds(1000)});
  const Pin pin = Computed(1, 4);
  // The object is removed after the put stored it and before its answer is known here.
  store_->on_put = [&](std::vector<PutResult>&) {
    store_->on_put = nullptr;
    cache_->Remove(TestKey(1), clock_.Now() + seconds(1), [](const RemoveResult&) {});
    put_->RunAll();
  };
  Publish(pin);
  put_->RunAll();
  ASSERT_FALSE(ReadObject(*memory_, TestKey(1)));
  Publish(pin);
  put_->RunAll();
  EXPECT_TRUE(ReadObject(*memory_, TestKey(1)));
}

TEST_F(PublishTest, AFailedPutConfirmsNothing) {
  Make({.publish_confirm = seconds(1000)});
  faults_->Inject({.op = StoreOp::kPut, .kind = FaultKind::kError, .count = 1});
  const Pin pin = Computed(1, 4);
  Publish(pin);
  put_->RunAll();
  Publish(pin);
  put_->RunAll();
  EXPECT_TRUE(ReadObject(*memory_, TestKey(1)));
}

TEST_F(PublishTest, PutsThatHoldAQuarterOfThePoolKeepFurtherOnesOut) {
  const Pin large = Computed(1, (kPages / 4 + 1) * kRowsPerPage), small = Computed(2, 1);
  Publish(large);
  Publish(small);
  EXPECT_EQ(Published("dropped"), 1);
  put_->RunAll();
  EXPECT_FALSE(ReadObject(*memory_, TestKey(2)));
  Publish(small);
  put_->RunAll();
  EXPECT_TRUE(ReadObject(*memory_, TestKey(2)));
}

TEST_F(PublishTest, AFullQueueDropsTheOldestPublicationAndFreesItsPins) {
  Make({.put = {.workers = 2, .max_queued_bytes = 33000}});
  std::vector<Pin> pins;
  for (uint64_t number = 0; number < 8; ++number) pins.push_back(Computed(number, 4));
  for (const Pin& pin : pins) Publish(pin);
  pins.clear();
  EXPECT_EQ(Published("dropped"), 2) << "of 8192 bytes each two run and four wait";
  put_->RunAll();
  EXPECT_EQ(host_->Stats(0).pinned, 0U);
  EXPECT_TRUE(ReadObject(*memory_, TestKey(7)));
  EXPECT_FALSE(ReadObject(*memory_, TestKey(2)));
}

TEST_F(PublishTest, ARemovalThatFailsDoesNotCloseTheBreaker) {
  Make({.put = {.breaker_failures = 1, .open_for = seconds(1)}});
  faults_->Inject({.op = StoreOp::kRemove, .kind = FaultKind::kError});
  RemoveResult removed;
  const auto remove = [&] {
    cache_->Remove(TestKey(1), clock_.Now() + seconds(1),
                   [&](RemoveResult result) { removed = result; });
    put_->RunAll();
  };
  remove();
  EXPECT_EQ(removed.outcome, RemoveOutcome::kFailed);
  EXPECT_TRUE(cache_->put_stats().breaker_open);
  Advance(milliseconds(1250));
  remove();
  EXPECT_TRUE(cache_->put_stats().breaker_open);
  remove();
  EXPECT_EQ(removed.status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(store_->removes, 2) << "the third was refused";
}

TEST_F(PublishTest, PresenceIsAskedInOneCallAndWhatFailsCountsAsAbsent) {
  for (const uint64_t number : {1U, 2U, 3U}) {
    WriteObject(*memory_, TestKey(number), MakeObject(number, TestInfo(number, 1)));
  }
  faults_->Inject({.op = StoreOp::kExist, .kind = FaultKind::kError, .key = TestKey(2).Text()});
  std::vector<bool> found;
  const auto ask = [&] {
    found = {};
    cache_->Exist({TestKey(1), TestKey(2), TestKey(3), TestKey(4)}, clock_.Now() + seconds(1),
                  [&](std::vector<bool> answer) { found = std::move(answer); });
    get_->RunAll();
  };
  ask();
  EXPECT_THAT(found, testing::ElementsAre(true, false, true, false));
  EXPECT_EQ(store_->stats, 1);
  for (const FaultKind kind : {FaultKind::kThrow, FaultKind::kHang}) {
    faults_->Inject({.op = StoreOp::kExist, .kind = kind, .count = 1});
    if (kind == FaultKind::kHang) break;
    ask();
    EXPECT_THAT(found, testing::ElementsAre(false, false, false, false));
  }
  std::thread worker;
  cache_->Exist({TestKey(1)}, clock_.Now() + seconds(1),
                [&](std::vector<bool> answer) { found = std::move(answer); });
  worker = std::thread([&] { get_->RunAll(); });
  ASSERT_TRUE(faults_->WaitUntilHanging(1, SteadyClock().Now() + seconds(100)));
  found = {true};
  Advance(seconds(1));
  EXPECT_THAT(found, testing::ElementsAre(false));
  faults_->Release();
  worker.join();
  EXPECT_EQ(Operations("exist", "timeout"), 1);
}

TEST_F(PublishTest, CloseIsIdempotentAndWaitsForNoHangingStoreBeyondItsDeadline) {
  faults_->Inject({.op = StoreOp::kPut, .kind = FaultKind::kHang});
  const Pin pin = Computed(1, 4);
  Publish(pin, seconds(100));
  std::thread worker([&] { put_->RunAll(); });
  ASSERT_TRUE(faults_->WaitUntilHanging(1, SteadyClock().Now() + seconds(100)));
  EXPECT_EQ(cache_->Close(clock_.Now()).code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Published("failed"), 1);
  EXPECT_EQ(cache_->Close(clock_.Now()).code(), StatusCode::kDeadlineExceeded);
  faults_->Clear();
  worker.join();
  EXPECT_TRUE(cache_->Close(clock_.Now()).ok());
  EXPECT_EQ(FetchOne(1, 4).outcome, FetchOutcome::kFailed) << "closed";
}

TEST_F(PublishTest, APublicationMayBeTheLastToHoldTheCache) {
  faults_->Inject({.op = StoreOp::kPut, .kind = FaultKind::kHang});
  Publish(Computed(1, 4), seconds(100));
  std::thread worker([&] { put_->RunAll(); });
  ASSERT_TRUE(faults_->WaitUntilHanging(1, SteadyClock().Now() + seconds(100)));
  (void)cache_->Close(clock_.Now());
  std::weak_ptr<GlobalCache> weak = cache_;
  cache_.reset();
  host_.reset();
  EXPECT_FALSE(weak.expired());
  faults_->Clear();
  worker.join();
  EXPECT_TRUE(weak.expired());
  EXPECT_EQ(pool_->Stats().free, kPages);
}

}  // namespace
}  // namespace embercache
