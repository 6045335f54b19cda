#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "src/cache/host_cache.h"
#include "tests/support/test_embeddings.h"

// Many threads on one host cache. ThreadSanitizer and AddressSanitizer watch; the tests look at
// bytes and counts.

namespace embercache {
namespace {

constexpr size_t kThreads = 4;

class HostCacheStressTest : public testing::Test {
 protected:
  void Make(uint64_t pages, HostCacheOptions options = {}) {
    pool_ = TestPool(pages);
    arena_ = TestPool(16, "uncached");
    cache_ = HostCache::Create(std::move(options));
    cache_->AddPool(pool_);
    cache_->SetArena(arena_);
  }

  void RunThreads(const std::function<void(size_t)>& body) {
    std::vector<std::thread> threads;
    for (size_t t = 0; t < kThreads; ++t) threads.emplace_back(body, t);
    for (std::thread& thread : threads) thread.join();
  }

  void TearDown() override {
    const Status status = cache_->CheckInvariants();
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(cache_->Stats(0).pinned, 0U);
    EXPECT_EQ(cache_->Stats(0).filling, 0U);
    cache_.reset();
    EXPECT_EQ(pool_->Stats().free, pool_->num_pages());
    EXPECT_EQ(arena_->Stats().free, arena_->num_pages());
  }

  std::shared_ptr<PagePool> pool_, arena_;
  std::shared_ptr<HostCache> cache_;
};

// A waiter that a thread can wait for.
struct Ticket {
  Mutex mutex;
  CondVar ended;
  std::optional<Result<Pin>> result GUARDED_BY(mutex);

  Result<Pin> Wait() {
    MutexLock lock(mutex);
    while (!result) ended.Wait(mutex);
    return *std::move(result);
  }
  static HostCache::Waiter Waiter(const std::shared_ptr<Ticket>& ticket) {
    return [ticket](Result<Pin> pin) {
      MutexLock lock(ticket->mutex);
      EXPECT_FALSE(ticket->result) << "called twice";
      ticket->result.emplace(std::move(pin));
      ticket->ended.NotifyAll();
    };
  }
};

TEST_F(HostCacheStressTest, EachKeyIsComputedOnceHoweverManyThreadsAsk) {
  constexpr uint64_t kKeys = 300;
  Make(kKeys);
  std::vector<std::atomic<int>> computed(kKeys);
  RunThreads([&](size_t) {
    for (uint64_t key = 0; key < kKeys; ++key) {
      auto ticket = std::make_shared<Ticket>();
      HostCache::Lookup found =
          cache_->FindOrClaim(TestKey(key), TestSpec(), 0, Ticket::Waiter(ticket));
      if (found.claim) {
        ++computed[key];
        ASSERT_TRUE(found.claim.Reserve(3 * kTestRowBytes, 0).ok());
        FillWith(key, found.claim.buffers());
        ASSERT_TRUE(Holds(key, found.claim.Commit(3, "").value(), 3));
      } else if (found.pin) {
        ASSERT_TRUE(Holds(key, found.pin, 3));
      } else {
        ASSERT_TRUE(Holds(key, ticket->Wait().value(), 3));
      }
    }
  });
  for (const std::atomic<int>& count : computed) EXPECT_EQ(count.load(), 1);
}

TEST_F(HostCacheStressTest, AfterAFailureExactlyOneLeadsAgainUntilOneSucceeds) {
  constexpr uint64_t kKeys = 100;
  constexpr int kFailures = 3;
  Make(kKeys);
  std::vector<std::atomic<int>> leaders(kKeys);
  std::vector<std::atomic<int>> at_once(kKeys);
  RunThreads([&](size_t) {
    for (uint64_t key = 0; key < kKeys; ++key) {
      for (;;) {
        auto ticket = std::make_shared<Ticket>();
        HostCache::Lookup found =
            cache_->FindOrClaim(TestKey(key), TestSpec(), 0, Ticket::Waiter(ticket));
        if (found.pin) break;
        if (found.ticket != 0) {
          if (ticket->Wait().ok()) break;
          continue;
        }
        ASSERT_EQ(at_once[key].fetch_add(1), 0) << "two lead at once";
        const int number = leaders[key].fetch_add(1);
        at_once[key].fetch_sub(1);
        if (number < kFailures) {
          found.claim.Abort(Status::Internal("the encoder fell over"));
        } else {
          ASSERT_TRUE(found.claim.Reserve(kTestRowBytes, 0).ok());
          FillWith(key, found.claim.buffers());
          ASSERT_TRUE(found.claim.Commit(1, "").ok());
        }
      }
    }
  });
  for (const std::atomic<int>& count : leaders) EXPECT_EQ(count.load(), kFailures + 1);
}

TEST_F(HostCacheStressTest, EvictionPinsRemovalsAndTransfersNeverChangeBytesUnderAPin) {
  constexpr uint64_t kKeys = 24;
  Make(20, {.max_eviction_batch = 2});
  std::atomic<bool> stop{false};
  std::thread checker([&] {
    while (!stop.load()) {
      const Status status = cache_->CheckInvariants();
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
  });
  RunThreads([&](size_t t) {
    std::mt19937_64 random(t);
    std::vector<std::pair<uint64_t, Pin>> pins;
    std::vector<std::shared_ptr<Block>> late;  // transfers that outlive their claims
    for (int i = 0; i < 3000; ++i) {
      const uint64_t key = random() % kKeys;
      const uint64_t tokens = 1 + key % 9;
      switch (random() % 8) {
        case 0:
          cache_->Remove(TestKey(key));
          break;
        case 1:
          if (!pins.empty()) pins.pop_back();
          break;
        case 2:
          if (!late.empty()) {
            for (const MutableBuffer& buffer : late.back()->fill_buffers()) {
              std::memset(buffer.data(), 0xEE, buffer.size());
            }
            late.pop_back();
          }
          break;
        default: {
          auto ticket = std::make_shared<Ticket>();
          HostCache::Lookup found =
              cache_->FindOrClaim(TestKey(key), TestSpec(), 0, Ticket::Waiter(ticket));
          if (found.pin) {
            ASSERT_TRUE(Holds(key, found.pin, tokens));
            pins.emplace_back(key, std::move(found.pin));
          } else if (found.ticket != 0) {
            if (random() % 2 == 0 && cache_->CancelWait(TestKey(key), found.ticket)) break;
            const Result<Pin> pin = ticket->Wait();
            ASSERT_TRUE(!pin.ok() || Holds(key, *pin, tokens));
          } else if (found.claim.Reserve(tokens * kTestRowBytes, 0).ok()) {
            if (random() % 4 == 0) {
              late.push_back(ClaimAccess::block(found.claim));
              found.claim.DropMemory();
            } else if (random() % 4 != 0) {
              FillWith(key, found.claim.buffers());
              Result<Pin> pin = found.claim.Commit(tokens, "");
              ASSERT_TRUE(Holds(key, *pin, tokens));
              pins.emplace_back(key, *std::move(pin));
            }
          }
        }
      }
      if (pins.size() > 3) pins.erase(pins.begin());
      for (const auto& [pinned, pin] : pins) ASSERT_TRUE(Holds(pinned, pin, 1 + pinned % 9));
    }
  });
  stop = true;
  checker.join();
}

}  // namespace
}  // namespace embercache
