#include "src/cache/host_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/manual_runtime.h"
#include "tests/support/test_embeddings.h"

namespace embercache {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kPages = 10;
constexpr uint64_t kArenaPages = 8;

// What came to a waiter.
struct Waited {
  int calls = 0;
  Status status;
  Pin pin;

  HostCache::Waiter waiter() {
    return [this](Result<Pin> result) {
      ++calls;
      status = result.status();
      if (result.ok()) pin = *std::move(result);
    };
  }
};

class HostCacheTest : public testing::Test {
 protected:
  HostCacheTest() { Make({}); }

  void Make(HostCacheOptions options) {
    options.clock = &clock_;
    options.on_evicted = [this](const std::string& pool, uint64_t entries) {
      evicted_[pool] += entries;
      steps_.push_back(entries);
    };
    options.on_uncached = [this](const char* reason) { uncached_.emplace_back(reason); };
    cache_ = HostCache::Create(std::move(options));
    pool_ = TestPool(kPages);
    other_pool_ = TestPool(kPages, "audio/1024");
    arena_ = TestPool(kArenaPages, "uncached");
    ASSERT_EQ(cache_->AddPool(pool_), kPool);
    ASSERT_EQ(cache_->AddPool(other_pool_), kOther);
    cache_->SetArena(arena_);
  }

  // When all handles are gone, so is all memory.
  void TearDown() override {
    Check();
    cache_.reset();
    for (const auto& pool : {pool_, other_pool_, arena_}) {
      EXPECT_EQ(pool->Stats().free, pool->num_pages()) << pool->name();
      EXPECT_EQ(pool->Stats().trailer_blocks_free, pool->num_pages()) << pool->name();
    }
  }

  void Check() {
    const Status status = cache_->CheckInvariants();
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (const auto& pool : {pool_, other_pool_, arena_}) {
      const PagePoolStats stats = pool->Stats();
      ASSERT_EQ(stats.free + stats.filling + stats.ready + stats.quarantined, pool->num_pages());
    }
  }

  HostCache::Lookup Find(uint64_t number, HostCache::Waiter waiter = nullptr,
                         uint32_t pool = kPool) {
    HostCache::Lookup lookup =
        cache_->FindOrClaim(TestKey(number), TestSpec(), pool, std::move(waiter));
    Check();
    return lookup;
  }

  Claim Lead(uint64_t number, uint32_t pool = kPool) {
    HostCache::Lookup lookup = Find(number, nullptr, pool);
    EXPECT_TRUE(lookup.claim) << number;
    return std::move(lookup.claim);
  }

  Result<Pin> Fill(Claim claim, uint64_t number, uint64_t tokens, std::string metadata = "") {
    EMBERCACHE_RETURN_IF_ERROR(claim.Reserve(tokens * kTestRowBytes, metadata.size()));
    Check();
    FillWith(number, claim.buffers());
    Result<Pin> pin = claim.Commit(tokens, std::move(metadata));
    Check();
    return pin;
  }

  // Puts an entry of so many pages into the cache, unpinned.
  void Put(uint64_t number, uint64_t pages, uint32_t pool = kPool) {
    Result<Pin> pin = Fill(Lead(number, pool), number, pages * kRowsPerPage);
    ASSERT_TRUE(pin.ok()) << pin.status().ToString();
    ASSERT_TRUE(pin->cached()) << number;
    pin->Release();
    clock_.Advance(std::chrono::seconds(1));
    Check();
  }

  // Which of the keys 0 to 99 are in the cache.
  std::vector<uint64_t> Present() {
    std::vector<uint64_t> present;
    for (uint64_t number = 0; number < 100; ++number) {
      if (cache_->Contains(TestKey(number))) present.push_back(number);
    }
    return present;
  }

  static constexpr uint32_t kPool = 0;
  static constexpr uint32_t kOther = 1;

  ManualClock clock_;
  std::shared_ptr<HostCache> cache_;
  std::shared_ptr<PagePool> pool_, other_pool_, arena_;
  std::map<std::string, uint64_t> evicted_;
  std::vector<uint64_t> steps_;
  std::vector<std::string> uncached_;
};

TEST_F(HostCacheTest, ANewKeyIsLedAndAfterCommitItIsAHit) {
  Claim claim = Lead(1);
  EXPECT_EQ(claim.key(), TestKey(1));
  EXPECT_FALSE(cache_->Contains(TestKey(1))) << "filling is not ready";
  EXPECT_FALSE(cache_->TryPin(TestKey(1)));
  Result<Pin> pin = Fill(std::move(claim), 1, 6, R"({"grid":[1,2,3]})");
  ASSERT_TRUE(pin.ok());
  EXPECT_TRUE(Holds(1, *pin, 6));
  EXPECT_EQ(pin->info().metadata, R"({"grid":[1,2,3]})");
  EXPECT_EQ(pin->info().spec, TestSpec());
  const HostCache::Lookup again = Find(1);
  EXPECT_TRUE(again.status.ok());
  EXPECT_TRUE(Holds(1, again.pin, 6));
  EXPECT_TRUE(Holds(1, cache_->TryPin(TestKey(1)), 6));
  EXPECT_EQ(cache_->Stats(kPool).ready, 1U);
  EXPECT_EQ(cache_->Stats(kPool).pinned, 1U);
}

TEST_F(HostCacheTest, WaitersGetTheLeadersResultEachWithItsOwnPin) {
  Claim claim = Lead(1);
  Waited waited[3];
  for (Waited& each : waited) {
    const HostCache::Lookup lookup = Find(1, each.waiter());
    EXPECT_NE(lookup.ticket, 0U);
    EXPECT_FALSE(lookup.pin);
    EXPECT_FALSE(lookup.claim);
  }
  EXPECT_EQ(waited[0].calls, 0);
  Result<Pin> pin = Fill(std::move(claim), 1, 4);
  pin->Release();
  for (Waited& each : waited) {
    EXPECT_EQ(each.calls, 1);
    EXPECT_TRUE(Holds(1, each.pin, 4));
    EXPECT_EQ(cache_->Stats(kPool).pinned, 1U);
    each.pin.Release();
    Check();
  }
  EXPECT_EQ(cache_->Stats(kPool).pinned, 0U);
}

TEST_F(HostCacheTest, WhenALeaderFailsItsWaitersGetTheReasonAndExactlyOneLeadsAgain) {
  Claim claim = Lead(1);
  ASSERT_TRUE(claim.Reserve(kTestRowBytes, 0).ok());
  Waited waited[2];
  for (Waited& each : waited) Find(1, each.waiter());
  claim.Abort(Status::Unavailable("the encoder fell over"));
  Check();
  EXPECT_FALSE(claim);
  EXPECT_EQ(pool_->Stats().free, kPages);
  for (const Waited& each : waited) {
    EXPECT_EQ(each.calls, 1);
    EXPECT_EQ(each.status.code(), StatusCode::kUnavailable);
    EXPECT_EQ(each.status.message(), "the encoder fell over");
  }
  Claim next = Lead(1);
  EXPECT_NE(Find(1, waited[0].waiter()).ticket, 0U) << "one leads, the other waits";
  next.Abort(Status::Cancelled("enough"));
  EXPECT_EQ(waited[0].calls, 2);
}

TEST_F(HostCacheTest, AClaimThatIsDroppedOrReplacedAborts) {
  Waited waited;
  {
    Claim claim = Lead(1);
    ASSERT_TRUE(claim.Reserve(kTestRowBytes, 0).ok());
    Find(1, waited.waiter());
  }
  EXPECT_EQ(waited.status.code(), StatusCode::kCancelled);
  Claim claim = Lead(1);
  Find(1, waited.waiter());
  claim = Lead(2);
  EXPECT_EQ(waited.calls, 2);
  Claim moved = std::move(claim);
  EXPECT_FALSE(claim);  // NOLINT(bugprone-use-after-move)
  EXPECT_TRUE(moved);
  EXPECT_EQ(cache_->Stats(kPool).filling, 1U);
}

TEST_F(HostCacheTest, AWaiterThatIsCancelledIsNeverCalled) {
  Claim claim = Lead(1);
  Waited cancelled, stays;
  const uint64_t ticket = Find(1, cancelled.waiter()).ticket;
  Find(1, stays.waiter());
  EXPECT_TRUE(cache_->CancelWait(TestKey(1), ticket));
  EXPECT_FALSE(cache_->CancelWait(TestKey(1), ticket));
  ASSERT_TRUE(Fill(std::move(claim), 1, 1).ok());
  EXPECT_EQ(cancelled.calls, 0);
  EXPECT_EQ(stays.calls, 1);
  EXPECT_FALSE(cache_->CancelWait(TestKey(1), ticket + 1)) << "it was called";
  EXPECT_FALSE(cache_->CancelWait(TestKey(2), ticket)) << "no such key";
}

TEST_F(HostCacheTest, AWaiterMayCallTheCacheBack) {
  Claim claim = Lead(1);
  bool led = false;
  Find(1, [&](const Result<Pin>& result) {
    EXPECT_FALSE(result.ok());
    HostCache::Lookup lookup = Find(1);
    led = static_cast<bool>(lookup.claim);
  });
  claim.Abort(Status::Internal("x"));
  EXPECT_TRUE(led);
}

TEST_F(HostCacheTest, OneKeyInTwoShapesIsRefused) {
  Put(1, 1);
  EmbeddingSpec wider = TestSpec();
  wider.hidden *= 2;
  EmbeddingSpec tenant = TestSpec();
  tenant.namespace_digest = Sha256Of("another");
  for (const EmbeddingSpec& spec : {wider, tenant}) {
    const HostCache::Lookup lookup = cache_->FindOrClaim(TestKey(1), spec, kPool, nullptr);
    EXPECT_EQ(lookup.status.code(), StatusCode::kInvalid);
    EXPECT_FALSE(lookup.pin || lookup.claim || lookup.ticket != 0);
  }
  EmbeddingSpec empty = TestSpec();
  empty.hidden = 0;
  EXPECT_EQ(cache_->FindOrClaim(TestKey(2), empty, kPool, nullptr).status.code(),
            StatusCode::kInvalid);
  Check();
}

TEST_F(HostCacheTest, ReservingMoreThanIsCommittedGivesTheSurplusBack) {
  Claim claim = Lead(1);
  ASSERT_TRUE(claim.Reserve(6 * kBlockBytes, 0).ok());
  EXPECT_EQ(pool_->Stats().filling, 6U);
  FillWith(1, claim.buffers());
  const Result<Pin> pin = claim.Commit(5, "");
  Check();
  ASSERT_TRUE(pin.ok());
  EXPECT_TRUE(Holds(1, *pin, 5));
  EXPECT_EQ(pool_->Stats().ready, 2U);
  EXPECT_EQ(pool_->Stats().free, kPages - 2);
}

TEST_F(HostCacheTest, ReservingAgainLetsTheEarlierMemoryGoFirst) {
  Claim claim = Lead(1);
  ASSERT_TRUE(claim.Reserve(8 * kBlockBytes, 0).ok());
  ASSERT_TRUE(claim.Reserve(9 * kBlockBytes, 0).ok());
  EXPECT_FALSE(claim.uncached());
  EXPECT_EQ(pool_->Stats().filling, 9U);
  Check();
  claim.DropMemory();
  EXPECT_EQ(pool_->Stats().free, kPages);
  Check();
}

TEST_F(HostCacheTest, ACommitThatExceedsItsReservationAborts) {
  for (const bool too_much_metadata : {false, true}) {
    Claim claim = Lead(1);
    Waited waited;
    Find(1, waited.waiter());
    ASSERT_TRUE(claim.Reserve(2 * kTestRowBytes, 0).ok());
    const Result<Pin> pin =
        too_much_metadata ? claim.Commit(2, std::string(3073, 'm')) : claim.Commit(3, "");
    EXPECT_EQ(pin.status().code(), StatusCode::kInvalid);
    EXPECT_FALSE(claim);
    EXPECT_EQ(waited.status.code(), StatusCode::kInvalid);
    EXPECT_EQ(pool_->Stats().free, kPages);
    Check();
  }
  EXPECT_EQ(Lead(2).Commit(1, "").status().code(), StatusCode::kInvalid) << "nothing reserved";
  Claim none = Lead(3);
  ASSERT_TRUE(none.Reserve(kTestRowBytes, 0).ok());
  EXPECT_EQ(none.Commit(0, "").status().code(), StatusCode::kInvalid) << "no rows";
}

TEST_F(HostCacheTest, ImpossibleReservationsAreRefusedAndTheClaimStaysGood) {
  Claim claim = Lead(1);
  EXPECT_EQ(claim.Reserve(0, 0).code(), StatusCode::kInvalid);
  EXPECT_EQ(claim.Reserve(1, kMaxMetadataBytes + 1).code(), StatusCode::kInvalid);
  for (const uint64_t bytes : {UINT64_MAX, UINT64_MAX - 4095, uint64_t{1} << 63,
                               (kArenaPages + kPages) * kBlockBytes + 1}) {
    EXPECT_EQ(claim.Reserve(bytes, 0).code(), StatusCode::kResourceExhausted) << bytes;
  }
  // More trailer blocks than either pool has.
  EXPECT_EQ(claim.Reserve(1, kMaxMetadataBytes).code(), StatusCode::kResourceExhausted);
  Check();
  EXPECT_TRUE(Fill(std::move(claim), 1, 1).ok());
}

TEST_F(HostCacheTest, LargeMetadataTakesMoreTrailerBlocks) {
  const std::string metadata(3 * kBlockBytes, 'm');
  const Result<Pin> pin = Fill(Lead(1), 1, 1, metadata);
  ASSERT_TRUE(pin.ok());
  EXPECT_EQ(pin->info().metadata, metadata);
  EXPECT_EQ(pool_->Stats().trailer_blocks_free, kPages - 4);
}

TEST_F(HostCacheTest, TheLeastRecentlyUsedUnpinnedEntriesAreEvictedFirst) {
  for (uint64_t number = 0; number < 5; ++number) Put(number, 2);
  cache_->TryPin(TestKey(0)).Release();  // 0 is used again
  const Pin pinned = cache_->TryPin(TestKey(1));
  Put(10, 4);
  EXPECT_THAT(Present(), ElementsAre(0, 1, 4, 10));
  EXPECT_TRUE(Holds(1, pinned, 8));
  EXPECT_EQ(evicted_["vision/1024"], 2U);
  const HostCacheStats stats = cache_->Stats(kPool);
  EXPECT_EQ(stats.evicted, 2U);
  EXPECT_EQ(stats.evicted_bytes, 4 * kBlockBytes);
  EXPECT_EQ(stats.eviction_rounds, 1U);
  EXPECT_EQ(stats.allocated_bytes, 14 * kBlockBytes);
  EXPECT_THAT(uncached_, IsEmpty());
}

TEST_F(HostCacheTest, WhatIsBeingFilledOrPinnedIsNotEvicted) {
  Claim filling = Lead(1);
  ASSERT_TRUE(filling.Reserve(4 * kBlockBytes, 0).ok());
  FillWith(1, filling.buffers());
  Put(2, 4);
  const Pin pinned = cache_->TryPin(TestKey(2));
  const Result<Pin> uncached = Fill(Lead(3), 3, 3 * kRowsPerPage);
  ASSERT_TRUE(uncached.ok());
  EXPECT_FALSE(uncached->cached());
  EXPECT_THAT(uncached_, ElementsAre("no_room"));
  EXPECT_THAT(Present(), ElementsAre(2));
  const Result<Pin> pin = filling.Commit(4 * kRowsPerPage, "");
  EXPECT_TRUE(Holds(1, *pin, 16));
  EXPECT_TRUE(Holds(2, pinned, 16));
  EXPECT_EQ(cache_->Stats(kPool).allocation_failures, 1U);
}

TEST_F(HostCacheTest, NothingIsEvictedForWhatWouldNotFitAnyway) {
  for (uint64_t number = 0; number < 5; ++number) Put(number, 2);
  const Pin pinned = cache_->TryPin(TestKey(4));
  const Result<Pin> nine = Fill(Lead(10), 10, 8 * kRowsPerPage + 1);
  EXPECT_EQ(nine.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(nine.status().message(), HasSubstr("no_room"));
  EXPECT_THAT(Present(), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(uncached_, ElementsAre("arena_full"));
}

TEST_F(HostCacheTest, EvictionGoesInStepsOfAtMostTheBatch) {
  Make({.max_eviction_batch = 3});
  for (uint64_t number = 0; number < kPages; ++number) Put(number, 1);
  Put(20, 8);
  EXPECT_THAT(steps_, ElementsAre(3, 3, 2));
  EXPECT_THAT(Present(), ElementsAre(8, 9, 20));
}

TEST_F(HostCacheTest, WithoutEvictionAFullPoolStaysAsItIs) {
  Make({.enable_eviction = false});
  Put(1, 9);
  const Result<Pin> pin = Fill(Lead(2), 2, 2 * kRowsPerPage);
  ASSERT_TRUE(pin.ok());
  EXPECT_FALSE(pin->cached());
  EXPECT_TRUE(Holds(2, *pin, 8));
  EXPECT_THAT(Present(), ElementsAre(1));
  Put(3, 1);
}

TEST_F(HostCacheTest, PoolsNeverTakeFromEachOther) {
  for (uint64_t number = 0; number < 5; ++number) Put(number, 2, kPool);
  for (uint64_t number = 50; number < 60; ++number) Put(number, 2, kOther);
  EXPECT_THAT(Present(), ElementsAre(0, 1, 2, 3, 4, 55, 56, 57, 58, 59));
  EXPECT_EQ(evicted_.count("vision/1024"), 0U);
  EXPECT_EQ(evicted_["audio/1024"], 5U);
  EXPECT_EQ(cache_->Stats(kPool).evicted, 0U);
}

TEST_F(HostCacheTest, AnItemAsLargeAsThePoolIsCached) {
  Put(1, 3);
  Put(2, kPages);
  EXPECT_THAT(Present(), ElementsAre(2));
}

TEST_F(HostCacheTest, AnItemLargerThanThePoolIsServedUncachedAndNothingIsEvicted) {
  pool_ = TestPool(4);
  cache_ = HostCache::Create({.on_uncached = [this](const char* r) { uncached_.emplace_back(r); }});
  cache_->AddPool(pool_);
  cache_->SetArena(arena_);
  Put(1, 2);
  const Result<Pin> pin = Fill(Lead(2), 2, 4 * kRowsPerPage + 1);
  ASSERT_TRUE(pin.ok());
  EXPECT_FALSE(pin->cached());
  EXPECT_TRUE(Holds(2, *pin, 17));
  EXPECT_EQ(pin->buffers().size(), 1U) << "a row never crosses from one buffer to the next";
  EXPECT_THAT(uncached_, ElementsAre("too_large"));
  EXPECT_THAT(Present(), ElementsAre(1));
}

TEST_F(HostCacheTest, AnUncachedItemIsSharedWithItsWaitersAndGoesWithTheLastPin) {
  Claim claim = Lead(1, HostCache::kNoPool);
  Waited waited;
  Find(1, waited.waiter(), HostCache::kNoPool);
  Result<Pin> pin = Fill(std::move(claim), 1, 8);
  ASSERT_TRUE(pin.ok());
  EXPECT_THAT(uncached_, ElementsAre("no_pool"));
  EXPECT_TRUE(Holds(1, waited.pin, 8));
  EXPECT_EQ(waited.pin.buffers().front().data(), pin->buffers().front().data());
  EXPECT_FALSE(cache_->Contains(TestKey(1)));
  Pin shared = pin->Share();
  pin->Release();
  waited.pin.Release();
  EXPECT_EQ(arena_->Stats().ready, 2U);
  EXPECT_TRUE(Holds(1, shared, 8));
  shared.Release();
  EXPECT_EQ(arena_->Stats().free, kArenaPages);
  EXPECT_TRUE(Lead(1, HostCache::kNoPool)) << "it was not kept";
}

TEST_F(HostCacheTest, WhenTheArenaIsFullTooTheLeaderIsToldAndMayTryAgain) {
  Claim first = Lead(1, HostCache::kNoPool);
  ASSERT_TRUE(first.Reserve(kArenaPages * kBlockBytes, 0).ok());
  Claim second = Lead(2, HostCache::kNoPool);
  EXPECT_EQ(second.Reserve(1024, 0).code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(uncached_, ElementsAre("no_pool", "arena_full"));
  first.Abort(Status::Cancelled("done"));
  EXPECT_TRUE(Fill(std::move(second), 2, 1).ok());
}

TEST_F(HostCacheTest, WithoutAnArenaWhatGetsNoPagesFails) {
  cache_ = HostCache::Create({});
  cache_->AddPool(pool_);
  EXPECT_EQ(Fill(Lead(1), 1, kPages * kRowsPerPage + 1).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(Fill(Lead(1, HostCache::kNoPool), 1, 1).status().code(),
            StatusCode::kResourceExhausted);
}

TEST_F(HostCacheTest, RequestsThatEachHoldWhatTheOtherNeedsAllFinish) {
  // Each holds four pages and needs four more; two are free.
  std::vector<Pin> first, second;
  first.push_back(*Fill(Lead(1), 1, 4 * kRowsPerPage));
  second.push_back(*Fill(Lead(2), 2, 4 * kRowsPerPage));
  Claim claims[2] = {Lead(11), Lead(12)};
  EXPECT_TRUE(claims[0].Reserve(4 * kBlockBytes, 0).ok());
  EXPECT_TRUE(claims[1].Reserve(4 * kBlockBytes, 0).ok());
  EXPECT_TRUE(claims[0].uncached());
  EXPECT_TRUE(claims[1].uncached());
  for (uint64_t i = 0; i < 2; ++i) {
    FillWith(11 + i, claims[i].buffers());
    EXPECT_TRUE(Holds(11 + i, *claims[i].Commit(16, ""), 16));
  }
}

TEST_F(HostCacheTest, HolesDoNotKeepALargeItemOut) {
  for (uint64_t number = 0; number < kPages; ++number) Put(number, 1);
  for (uint64_t number = 1; number < kPages; number += 2) {
    EXPECT_TRUE(cache_->Remove(TestKey(number)));
  }
  const Pin pinned = cache_->TryPin(TestKey(4));
  const Result<Pin> five = Fill(Lead(20), 20, 5 * kRowsPerPage);
  ASSERT_TRUE(five.ok());
  EXPECT_TRUE(five->cached());
  EXPECT_TRUE(Holds(20, *five, 20));
  EXPECT_EQ(five->buffers().size(), 5U);
  EXPECT_THAT(Present(), ElementsAre(0, 2, 4, 6, 8, 20)) << "nothing had to go";
  Put(21, 4);
  EXPECT_THAT(Present(), ElementsAre(4, 20, 21));
  EXPECT_TRUE(Holds(4, pinned, 4));
}

TEST_F(HostCacheTest, ManyInsertionsOfManySizesAllFindRoom) {
  uint64_t random = 1;
  for (uint64_t number = 100; number < 1100; ++number) {
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    const uint64_t pages = std::vector<uint64_t>{1, 2, 3, 7, 10}[(random >> 33) % 5];
    Put(number, pages);
    ASSERT_TRUE(Holds(number, cache_->TryPin(TestKey(number)), pages * kRowsPerPage));
  }
  EXPECT_THAT(uncached_, IsEmpty());
}

TEST_F(HostCacheTest, ARemovedEntryIsGoneAndItsPinsStayGood) {
  EXPECT_FALSE(cache_->Remove(TestKey(1)));
  Put(1, 2);
  EXPECT_TRUE(cache_->Remove(TestKey(1)));
  EXPECT_EQ(pool_->Stats().free, kPages);
  Put(1, 2);
  Pin pin = cache_->TryPin(TestKey(1));
  EXPECT_TRUE(cache_->Remove(TestKey(1)));
  Check();
  EXPECT_FALSE(cache_->Contains(TestKey(1)));
  Put(1, 3);
  Pin shared = pin.Share();
  pin.Release();
  Check();
  EXPECT_TRUE(Holds(1, shared, 8)) << "the old bytes";
  EXPECT_TRUE(Holds(1, cache_->TryPin(TestKey(1)), 12)) << "the new ones";
  EXPECT_EQ(pool_->Stats().ready, 5U);
  shared.Release();
  EXPECT_EQ(pool_->Stats().ready, 3U);
}

TEST_F(HostCacheTest, ARemovedFillStillAnswersItsWaitersAndIsNotKept) {
  Claim old_claim = Lead(1);
  Waited old_waiter, cancelled;
  Find(1, old_waiter.waiter());
  const uint64_t old_ticket = Find(1, cancelled.waiter()).ticket;
  EXPECT_TRUE(cache_->Remove(TestKey(1)));
  Check();
  Claim new_claim = Lead(1);
  Waited new_waiter;
  const uint64_t new_ticket = Find(1, new_waiter.waiter()).ticket;
  EXPECT_TRUE(cache_->CancelWait(TestKey(1), old_ticket)) << "its deadline still counts";
  EXPECT_TRUE(cache_->CancelWait(TestKey(1), new_ticket));
  const Result<Pin> old_pin = Fill(std::move(old_claim), 1, 4);
  ASSERT_TRUE(old_pin.ok());
  EXPECT_TRUE(Holds(1, old_waiter.pin, 4));
  EXPECT_FALSE(cache_->Contains(TestKey(1)));
  EXPECT_TRUE(Fill(std::move(new_claim), 1, 8).ok());
  EXPECT_TRUE(Holds(1, cache_->TryPin(TestKey(1)), 8));
  EXPECT_EQ(cancelled.calls + new_waiter.calls, 0);
}

TEST_F(HostCacheTest, ARemovedFillMayAlsoFailOrEndUncached) {
  Waited waited[2];
  Claim fails = Lead(1);
  Find(1, waited[0].waiter());
  EXPECT_TRUE(cache_->Remove(TestKey(1)));
  fails.Abort(Status::Internal("x"));
  Check();
  EXPECT_EQ(waited[0].status.code(), StatusCode::kInternal);
  Claim uncached = Lead(2, HostCache::kNoPool);
  Find(2, waited[1].waiter(), HostCache::kNoPool);
  EXPECT_TRUE(cache_->Remove(TestKey(2)));
  EXPECT_TRUE(Fill(std::move(uncached), 2, 1).ok());
  EXPECT_TRUE(Holds(2, waited[1].pin, 1));
}

TEST_F(HostCacheTest, PinsAndClaimsOutliveTheCache) {
  Put(1, 2);
  Pin pin = cache_->TryPin(TestKey(1));
  Claim claim = Lead(2);
  ASSERT_TRUE(claim.Reserve(kTestRowBytes, 0).ok());
  FillWith(2, claim.buffers());
  cache_ = HostCache::Create({});
  EXPECT_TRUE(Holds(1, pin, 8));
  Result<Pin> late = claim.Commit(1, "");
  ASSERT_TRUE(late.ok());
  EXPECT_TRUE(Holds(2, *late, 1));
  EXPECT_EQ(pool_->Stats().ready, 3U);
  late->Release();
  pin.Release();
  EXPECT_EQ(pool_->Stats().free, kPages);
}

TEST_F(HostCacheTest, PagesThatATransferStillHasAreNotUsedAgain) {
  Claim claim = Lead(1);
  ASSERT_TRUE(claim.Reserve(8 * kBlockBytes, 0).ok());
  std::shared_ptr<Block> transfer = ClaimAccess::block(claim);
  claim.DropMemory();
  Check();
  EXPECT_EQ(pool_->Stats().quarantined, 8U);
  EXPECT_EQ(pool_->Stats().free, 2U);
  // The leader computes instead, in what is left.
  const Result<Pin> pin = Fill(std::move(claim), 1, 2 * kRowsPerPage);
  ASSERT_TRUE(pin.ok());
  EXPECT_TRUE(pin->cached());
  EXPECT_EQ(Fill(Lead(2), 2, 3 * kRowsPerPage)->cached(), false);
  for (const MutableBuffer& buffer : transfer->fill_buffers()) {
    std::memset(buffer.data(), 0xEE, buffer.size());  // the late transfer writes
  }
  EXPECT_TRUE(Holds(1, *pin, 8));
  transfer.reset();
  Check();
  EXPECT_EQ(pool_->Stats().quarantined, 0U);
  EXPECT_EQ(pool_->Stats().free, 8U);
}

TEST_F(HostCacheTest, AnAbortOrANewReservationLeavesItsTransferTheOldPages) {
  Claim claim = Lead(1);
  ASSERT_TRUE(claim.Reserve(2 * kBlockBytes, 0).ok());
  std::shared_ptr<Block> first = ClaimAccess::block(claim);
  ASSERT_TRUE(claim.Reserve(3 * kBlockBytes, 0).ok());
  EXPECT_EQ(pool_->Stats().quarantined, 2U);
  std::shared_ptr<Block> second = ClaimAccess::block(claim);
  claim.Abort(Status::DeadlineExceeded("late"));
  Check();
  EXPECT_EQ(pool_->Stats().quarantined, 5U);
  first.reset();
  second.reset();
  EXPECT_EQ(pool_->Stats().free, kPages);
}

TEST_F(HostCacheTest, AnEntryIsPublishedForTheFirstTimeOnce) {
  Put(1, 1);
  Pin pin = cache_->TryPin(TestKey(1), /*count_use=*/false);
  EXPECT_TRUE(cache_->MarkPublished(pin));
  EXPECT_FALSE(cache_->MarkPublished(pin));
  Claim fetched = Lead(2);
  ASSERT_TRUE(fetched.Reserve(kTestRowBytes, 0).ok());
  FillWith(2, fetched.buffers());
  const Result<Pin> from_store = ClaimAccess::CommitFetched(fetched, 1, "");
  EXPECT_FALSE(cache_->MarkPublished(*from_store)) << "not computed here";
  const Result<Pin> uncached = Fill(Lead(3, HostCache::kNoPool), 3, 1);
  EXPECT_FALSE(cache_->MarkPublished(*uncached));
}

TEST_F(HostCacheTest, APinThatIsReleasedTwiceIsReleasedOnce) {
  Put(1, 1);
  Pin pin = cache_->TryPin(TestKey(1));
  Pin other = pin.Share();
  pin.Release();
  pin.Release();
  EXPECT_FALSE(pin);
  Check();
  EXPECT_EQ(cache_->Stats(kPool).pinned, 1U);
  other = Pin();
  EXPECT_EQ(cache_->Stats(kPool).pinned, 0U);
}

TEST_F(HostCacheTest, CostAwareEvictionKeepsWhatIsDearToCompute) {
  Make({.eviction = EvictionKind::kSampledCost});
  const auto put = [&](uint64_t number, double cost_ms) {
    Claim claim = Lead(number);
    ASSERT_TRUE(claim.Reserve(2 * kBlockBytes, 0).ok());
    ASSERT_TRUE(claim.Commit(2 * kRowsPerPage, "", cost_ms).ok());
    clock_.Advance(std::chrono::seconds(1));
    Check();
  };
  put(0, 1000);
  for (uint64_t number = 1; number < 8; ++number) put(number, 10);
  EXPECT_THAT(Present(), ElementsAre(0, 4, 5, 6, 7));
}

}  // namespace
}  // namespace embercache
