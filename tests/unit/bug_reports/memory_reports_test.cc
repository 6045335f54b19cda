// Faults that users of such caches reported, as tests of the cache core: pins, pages, eviction, and
// work done twice.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <thread>

#include "src/base/log.h"
#include "src/store/memory/memory_store.h"
#include "tests/simulation/real_node.h"

namespace embercache::simulation {
namespace {

constexpr uint64_t kRowsOfAPage = 256;

Media Pages(const std::string& name, uint32_t id, uint64_t pages) {
  return MediaOf(name, id, pages * kRowsOfAPage);
}

class MemoryReports : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(SetLogLevel("error").ok()); }

  const std::shared_ptr<EmbeddingStore> store_ = CreateMemoryStore({}).value();
};

// The buffer of a read that nobody waits for was used again, and the late bytes fell on another
// item.
TEST_F(MemoryReports, LateBytesOfACancelledReadFallOnNobody) {
  const Media late = Pages("late", 1, 8);
  const Media large = Pages("large", 2, 24);
  const Media small = Pages("small", 3, 8);
  {
    RealNode writer(store_);
    (void)writer.Have(late);
    (void)writer.Publish(late);
  }
  ControllerOptions options = NodeOptions(32);
  options.lookup_timeout = std::chrono::milliseconds(20);
  options.max_uncached_bytes = 0;
  RealNode node(store_, options);
  node.store->Inject({.op = StoreOp::kGet, .kind = FaultKind::kHang, .key = late.key.Text()});
  ASSERT_TRUE(node.Prefetch("request", late).ok());
  ASSERT_TRUE(node.store->WaitUntilHanging(1, SteadyClock().Now() + kPatience));
  EXPECT_EQ(node.WaitPrefetch("request"), PrefetchOutcome::kFailed);
  EXPECT_EQ(node.pool().quarantined, 8U);

  const Pin pin = node.Finish(large, std::move(node.Lookup(large).claim));
  LookupAnswer refused = node.Lookup(small);
  ASSERT_TRUE(refused.claim);
  EXPECT_TRUE(refused.no_room);
  EXPECT_EQ(refused.claim.Reserve(small.payload_bytes(), 0).code(), StatusCode::kResourceExhausted);
  refused.claim.Abort(Status::ResourceExhausted("no room"));

  node.store->Clear();
  RealNode::Await([&] { return node.pool().quarantined == 0; });
  EXPECT_EQ(CheckPin(large, pin), "");
  EXPECT_EQ(node.pool().free, 8U);
  EXPECT_EQ(node.Have(small), Source::kGlobal);
  EXPECT_EQ(node.pool().free + node.pool().ready, 32U);
}

TEST_F(MemoryReports, CloseLeavesTheMemoryOfAHangingReadAloneAndItGoesWhenTheReadReturns) {
  const Media media = Pages("late", 1, 8);
  {
    RealNode writer(store_);
    (void)writer.Have(media);
    (void)writer.Publish(media);
  }
  auto node = std::make_unique<RealNode>(store_);
  const std::shared_ptr<FaultyStore> way = node->store;
  const std::weak_ptr<PagePool> pool = node->controller->host_cache().pool(0);
  const std::weak_ptr<Metrics> everything = node->metrics;
  way->Inject({.op = StoreOp::kGet, .kind = FaultKind::kHang});
  ASSERT_TRUE(node->Prefetch("request", media).ok());
  ASSERT_TRUE(way->WaitUntilHanging(1, SteadyClock().Now() + kPatience));
  EXPECT_EQ(node->controller->Close(SteadyClock().Now() + std::chrono::milliseconds(10)).code(),
            StatusCode::kDeadlineExceeded);
  node.reset();
  EXPECT_FALSE(pool.expired());
  way->Clear();
  RealNode::Await([&] { return pool.expired() && everything.expired(); });
}

// Pins whose request is over, however it ended, keep nothing.
TEST_F(MemoryReports, DroppedHandlesKeepNothingPinned) {
  RealNode node(store_, NodeOptions(64));
  {
    std::vector<Pin> pins;
    for (uint32_t i = 0; i < 32; ++i) {
      const Media media = Pages("old" + std::to_string(i), i, 1);
      (void)node.Have(media);
      pins.push_back(node.controller->TryPin(media.key));
    }
    EXPECT_EQ(node.pool().pinned_entries, 32U);
  }
  EXPECT_EQ(node.pool().pinned_entries, 0U);
  for (uint32_t i = 0; i < 64; ++i) {
    const Media media = Pages("new" + std::to_string(i), i, 1);
    (void)node.Have(media);
    EXPECT_TRUE(node.controller->HasLocalEmbedding(media.key));
  }
  EXPECT_EQ(node.pool().allocation_failures, 0U);
}

TEST_F(MemoryReports, PinsOfARequestThatNobodyReleasesEndWithItsTime) {
  ControllerOptions options = NodeOptions();
  options.request_ttl = std::chrono::milliseconds(20);
  RealNode node(store_, options);
  const Media media = Pages("photo", 1, 1);
  (void)node.Have(media);
  ASSERT_TRUE(node.Prefetch("request", media).ok());
  RealNode::Await([&] { return node.pool().pinned_entries == 0; });
  RealNode::Await(
      [&] { return node.controller->ReleaseRequest("request").code() == StatusCode::kNotFound; });
}

TEST_F(MemoryReports, ASecondReleaseIsAnErrorAndTakesNothingFromOthers) {
  RealNode node(store_);
  const Media media = Pages("photo", 1, 1);
  (void)node.Have(media);
  ASSERT_TRUE(node.Prefetch("first", media).ok());
  ASSERT_TRUE(node.Prefetch("second", media).ok());
  EXPECT_TRUE(node.controller->ReleaseRequest("first").ok());
  EXPECT_EQ(node.controller->ReleaseRequest("first").code(), StatusCode::kNotFound);
  EXPECT_EQ(node.pool().pinned_entries, 1U) << "the second request's";
  EXPECT_TRUE(node.controller->ReleaseRequest("second").ok());
  EXPECT_EQ(node.pool().pinned_entries, 0U);
}

TEST_F(MemoryReports, RequestsThatBeginAndEndAtRandomLeaveNoPin) {
  RealNode node(nullptr);
  std::vector<Media> media;
  for (uint32_t i = 0; i < 16; ++i) {
    media.push_back(Pages("photo" + std::to_string(i), i, 1));
    (void)node.Have(media.back());
  }
  std::mt19937_64 random(1);
  std::deque<std::string> open;
  for (int step = 0; step < 100000; ++step) {
    if (open.empty() || (open.size() < 8 && random() % 2 == 0)) {
      open.push_back(std::to_string(step));
      const std::vector<LookupItem> items = {{media[random() % 16].key, -1},
                                             {media[random() % 16].key, -1}};
      ASSERT_TRUE(node.controller->Prefetch(open.back(), SimSpec(), items).ok());
    } else {
      std::swap(open.front(), open[random() % open.size()]);
      ASSERT_TRUE(node.controller->ReleaseRequest(open.front()).ok());
      open.pop_front();
    }
  }
  for (const std::string& request : open)
    ASSERT_TRUE(node.controller->ReleaseRequest(request).ok());
  EXPECT_EQ(node.pool().pinned_entries, 0U);
  EXPECT_TRUE(node.controller->host_cache().CheckInvariants().ok());
}

// The tenant's salt is part of the key for every call that takes one.
TEST_F(MemoryReports, ATenantReleasesAndRemovesItsOwnEntriesOnly) {
  RealNode node(store_);
  std::vector<Media> media;
  for (uint32_t tenant = 0; tenant < 8; ++tenant) {
    const Digest256 salted = NamespaceDigest({.tenant_salt = std::to_string(tenant)});
    media.push_back(MediaOf("photo", tenant, 3, salted));
    (void)node.Have(media.back());
    ASSERT_TRUE(node.Prefetch("request" + std::to_string(tenant), media.back()).ok());
  }
  EXPECT_EQ(node.pool().pinned_entries, 8U);
  for (uint32_t tenant = 0; tenant < 8; ++tenant) {
    EXPECT_EQ(node.Have(media[tenant]), Source::kLocal);
    EXPECT_TRUE(node.controller->ReleaseRequest("request" + std::to_string(tenant)).ok());
    EXPECT_EQ(node.pool().pinned_entries, 7U - tenant);
    node.controller->Remove(media[tenant].key, SteadyClock().Now() + kPatience,
                            [](const RemoveResult&) {});
    EXPECT_FALSE(node.controller->HasLocalEmbedding(media[tenant].key));
    EXPECT_EQ(node.pool().entries, 7U - tenant);
  }
}

// "Does not fit now" and "can never fit" are not the same.
TEST_F(MemoryReports, AnItemLargerThanThePoolIsServedUncachedAndEvictsNothing) {
  RealNode node(store_, NodeOptions(10));
  (void)node.Have(Pages("resident", 1, 4));
  const Media too_large = Pages("too large", 2, 11);
  const Pin pin = node.Finish(too_large, std::move(node.Lookup(too_large).claim));
  EXPECT_EQ(CheckPin(too_large, pin), "");
  EXPECT_FALSE(pin.cached());
  EXPECT_FALSE(node.controller->HasLocalEmbedding(too_large.key));
  EXPECT_EQ(node.pool().evicted, 0U);
  EXPECT_EQ(node.metrics->uncached.Add({{"reason", "too_large"}}).Value(), 2)
      << "once for the read, once for the encoder";

  const Media exact = Pages("exact", 3, 10);
  EXPECT_TRUE(node.Finish(exact, std::move(node.Lookup(exact).claim)).cached());
}

TEST_F(MemoryReports, TwoItemsThatFitOneAtATimeAreBothServed) {
  RealNode node(store_, NodeOptions(10));
  const Media both[] = {Pages("one", 1, 6), Pages("two", 2, 6)};
  std::vector<LookupAnswer> answers = node.Lookup(both);
  const Pin one = node.Finish(both[0], std::move(answers[0].claim));
  const Pin two = node.Finish(both[1], std::move(answers[1].claim));
  EXPECT_EQ(CheckPin(both[0], one), "");
  EXPECT_EQ(CheckPin(both[1], two), "");
  EXPECT_EQ((one.cached() ? 1 : 0) + (two.cached() ? 1 : 0), 1);
}

// A pool of sizes that change breaks into holes; nothing may be refused for that.
class Fragmentation : public testing::Test {
 protected:
  static constexpr uint64_t kPages = 1024;
  static constexpr uint64_t kPageBytes = 4096;

  Fragmentation() {
    pool_ = PagePool::Create({.name = "test",
                              .row_bytes = SimSpec().row_bytes(),
                              .size_bytes = kPages * 2 * kPageBytes,
                              .prefault = false,
                              .page_bytes = kPageBytes})
                .value();
    (void)cache_->AddPool(pool_);
  }

  Media Sized(uint32_t id, uint64_t pages) { return MediaOf(std::to_string(id), id, pages * 4); }
  Pin Add(const Media& media) {
    HostCache::Lookup found = cache_->FindOrClaim(media.key, SimSpec(), 0, nullptr);
    EXPECT_TRUE(found.claim.Reserve(media.payload_bytes(), media.metadata.size()).ok());
    FillRows(media, 0, media.tokens, found.claim.buffers());
    Result<Pin> pin = found.claim.Commit(media.tokens, media.metadata);
    EXPECT_TRUE(pin.ok());
    return std::move(pin).value();
  }

  std::shared_ptr<HostCache> cache_ = HostCache::Create({});
  std::shared_ptr<PagePool> pool_;
};

TEST_F(Fragmentation, NoInsertThatFitsIsRefusedAndTheLeastRecentGoFirst) {
  std::mt19937_64 random(1);
  const uint64_t sizes[] = {1, 3, 7, 50, 200};
  std::deque<Media> inserted;
  size_t gone = 0;
  uint64_t pages = 0;
  for (uint32_t id = 0; pages < 100 * kPages; ++id) {
    const uint64_t size = sizes[random() % std::size(sizes)];
    pages += size;
    inserted.push_back(Sized(id, size));
    EXPECT_EQ(CheckPin(inserted.back(), Add(inserted.back())), "");
    while (!cache_->Contains(inserted[gone].key)) ++gone;
    EXPECT_EQ(cache_->Stats(0).ready, inserted.size() - gone) << "not the least recent went";
    const PagePoolStats stats = pool_->Stats();
    ASSERT_EQ(stats.free + stats.ready, kPages);
  }
  EXPECT_EQ(cache_->Stats(0).allocation_failures, 0U);
  EXPECT_GT(gone, 0U);
}

TEST_F(Fragmentation, AnItemOfManyPagesFitsIntoHolesAroundAPinnedOne) {
  std::vector<Pin> kept;
  for (uint32_t id = 0; id < kPages; ++id) {
    Pin pin = Add(Sized(id, 1));
    if (id == kPages / 2) kept.push_back(std::move(pin));
  }
  for (uint32_t id = 1; id < kPages; id += 2) EXPECT_TRUE(cache_->Remove(Sized(id, 1).key));
  const Media large = Sized(kPages, kPages / 2);
  const Pin pin = Add(large);
  EXPECT_EQ(CheckPin(large, pin), "");
  EXPECT_EQ(CheckPin(Sized(kPages / 2, 1), kept.front()), "");
  EXPECT_EQ(cache_->Stats(0).evicted, 0U);
}

// Ten requests for one image.
TEST_F(MemoryReports, TenWhoMissAtOnceComputeOnce) {
  RealNode node(store_);
  const Media media = Pages("photo", 1, 2);
  std::vector<std::thread> requests;
  std::atomic<int> computed{0};
  std::atomic<int> waiting{0};
  for (int i = 0; i < 10; ++i) {
    requests.emplace_back([&] {
      const LookupItem item{media.key, -1};
      std::atomic<bool> answered{false};
      LookupAnswer answer;
      const TimePoint deadline = SteadyClock().Now() + kPatience;
      ++waiting;
      node.controller->Lookup(SimSpec(), std::span(&item, 1), deadline, deadline,
                              [&](size_t, LookupAnswer given) {
                                answer = std::move(given);
                                answered = true;
                              });
      RealNode::Await([&] { return answered.load(); });
      if (answer.claim) {
        ++computed;
        RealNode::Await([&] { return waiting == 10; });
        answer.pin = node.Finish(media, std::move(answer.claim));
      }
      EXPECT_EQ(CheckPin(media, answer.pin), "");
    });
  }
  for (std::thread& request : requests) request.join();
  EXPECT_EQ(computed, 1);
}

TEST_F(MemoryReports, WhenTheOneWhoComputesFailsExactlyOneOfTheOthersTakesOver) {
  RealNode node(nullptr);
  const Media media = Pages("photo", 1, 1);
  Claim leader = std::move(node.Lookup(media).claim);
  std::vector<LookupAnswer> answers(9);
  size_t answered = 0;
  const LookupItem item{media.key, -1};
  const auto ask = [&] {
    answered = 0;
    for (size_t i = 0; i < answers.size(); ++i) {
      node.controller->Lookup(SimSpec(), std::span(&item, 1), SteadyClock().Now() + kPatience,
                              SteadyClock().Now() + kPatience, [&, i](size_t, LookupAnswer given) {
                                answers[i] = std::move(given);
                                ++answered;
                              });
    }
  };
  ask();
  EXPECT_EQ(answered, 0U);
  leader.Abort(Status::Internal("the encoder failed"));
  EXPECT_EQ(answered, 9U);
  for (const LookupAnswer& answer : answers) {
    EXPECT_EQ(answer.status.message(), "the encoder failed");
  }
  ask();
  EXPECT_EQ(answered, 1U);
  ASSERT_TRUE(answers[0].claim);
  const Pin pin = node.Finish(media, std::move(answers[0].claim));
  EXPECT_EQ(answered, 9U);
  for (size_t i = 1; i < answers.size(); ++i) EXPECT_EQ(CheckPin(media, answers[i].pin), "");
}

// A half-done write of one who is gone must not keep the key "in progress" for ever.
TEST_F(MemoryReports, AClaimWhoseOwnerIsGoneIsAMissForTheNext) {
  RealNode node(store_);
  const Media media = Pages("photo", 1, 2);
  for (int kill = 0; kill < 1000; ++kill) {
    LookupAnswer answer = node.Lookup(media);
    ASSERT_TRUE(answer.claim);
    ASSERT_TRUE(answer.claim.Reserve(media.payload_bytes(), 0).ok());
    FillRows(media, 0, media.tokens / 2, answer.claim.buffers());
  }
  EXPECT_EQ(node.pool().free, node.pool().pages);
  EXPECT_EQ(CheckPin(media, node.Finish(media, std::move(node.Lookup(media).claim))), "");
}

}  // namespace
}  // namespace embercache::simulation
