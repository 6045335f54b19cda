#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/cache/global_cache.h"
#include "src/cache/host_cache.h"
#include "src/store/faulty_store.h"
#include "src/store/memory/memory_store.h"
#include "tests/support/hook_store.h"
#include "tests/support/manual_runtime.h"
#include "tests/support/stored_object.h"

namespace embercache {

// A GlobalCache over hooks over faults over a memory store, with time and threads by hand.
class GlobalCacheFixture : public testing::Test {
 protected:
  GlobalCacheFixture() { Make({}); }

  // A task that never ran keeps its lane, and the lane the tasks.
  void TearDown() override { Settle(); }

  // Everything anew, the store too.
  void Make(GlobalCacheOptions options) {
    memory_ = CreateMemoryStore({.clock = &clock_}).value();
    faults_ = std::make_shared<FaultyStore>(memory_);
    store_ = std::make_shared<HookStore>(faults_);
    metrics_ = std::make_shared<Metrics>();
    cache_ = GlobalCache::Create(store_, options, get_, put_, timer_, &clock_, metrics_);
    host_ = HostCache::Create({.clock = &clock_});
    pool_ = TestPool(kPages);
    host_->AddPool(pool_);
  }

  void Settle() {
    while (get_->RunAll() + put_->RunAll() > 0) {
    }
  }

  void Advance(Duration time) {
    clock_.Advance(time);
    timer_->RunDue();
  }

  double Value(prometheus::Family<prometheus::Counter>& family,
               const prometheus::Labels& labels) const {
    return family.Add(labels).Value();
  }
  double Corruptions() const { return Value(metrics_->corruptions, {{"backend", "memory"}}); }
  double Incompatible() const { return Value(metrics_->incompatible, {{"backend", "memory"}}); }
  double Published(const char* result) const {
    return Value(metrics_->published, {{"result", result}});
  }
  double Operations(const char* op, const char* result) const {
    return Value(metrics_->store_operations,
                 {{"backend", "memory"}, {"op", op}, {"result", result}});
  }

  Result<std::shared_ptr<Block>> Allocate(uint64_t payload_bytes, uint64_t trailer_blocks) {
    PageList memory;
    if (!pool_->Allocate(pool_->PagesFor(payload_bytes), static_cast<uint32_t>(trailer_blocks),
                         false, &memory)) {
      return Status::ResourceExhausted("the test's pool is full");
    }
    return std::make_shared<Block>(std::move(memory), payload_bytes);
  }

  // `tokens`: as the caller of the look-up knows them, or -1.
  FetchItem Item(uint64_t number, int64_t tokens) {
    FetchItem item{.key = TestKey(number), .expected_tokens = tokens};
    if (tokens > 0) item.block = Allocate(static_cast<uint64_t>(tokens) * kTestRowBytes, 1).value();
    item.reserve = [this](uint64_t bytes, uint64_t blocks) { return Allocate(bytes, blocks); };
    return item;
  }

  // A batch whose results come into `results`.
  void Fetch(std::vector<FetchItem> items, std::vector<FetchResult>* results,
             Duration timeout = std::chrono::seconds(1)) {
    cache_->Fetch(TestSpec(), std::move(items), pool_.get(), clock_.Now() + timeout,
                  [results](std::vector<FetchResult> answers) {
                    ASSERT_TRUE(results->empty()) << "answered twice";
                    *results = std::move(answers);
                  });
  }

  FetchResult FetchOne(uint64_t number, int64_t tokens) {
    std::vector<FetchItem> items;
    items.push_back(Item(number, tokens));
    std::vector<FetchResult> results;
    Fetch(std::move(items), &results);
    get_->RunAll();
    EXPECT_EQ(results.size(), 1U);
    return results.empty() ? FetchResult() : std::move(results.front());
  }

  static bool Holds(uint64_t tag, const FetchResult& result, uint64_t tokens) {
    if (result.outcome != FetchOutcome::kHit || result.tokens != tokens) return false;
    std::vector<ConstBuffer> payload;
    uint64_t left = tokens * kTestRowBytes;
    for (const MutableBuffer& buffer : result.block->fill_buffers()) {
      payload.push_back(ConstBuffer(buffer).first(std::min<uint64_t>(left, buffer.size())));
      left -= payload.back().size();
    }
    return left == 0 && embercache::Holds(tag, payload);
  }

  // A pin of a new entry of the host cache.
  Pin Computed(uint64_t number, uint64_t tokens, std::string metadata = "") {
    HostCache::Lookup found = host_->FindOrClaim(TestKey(number), TestSpec(), 0, nullptr);
    EXPECT_TRUE(found.claim);
    EXPECT_TRUE(found.claim.Reserve(tokens * kTestRowBytes, metadata.size()).ok());
    FillWith(number, found.claim.buffers());
    return found.claim.Commit(tokens, std::move(metadata)).value();
  }

  void Publish(const Pin& pin, Duration timeout = std::chrono::seconds(1)) {
    std::vector<Pin> pins;
    pins.push_back(pin.Share());
    cache_->Publish(std::move(pins), clock_.Now() + timeout);
  }

  static constexpr uint64_t kPages = 32;

  ManualClock clock_;
  std::shared_ptr<ManualExecutor> get_ = std::make_shared<ManualExecutor>();
  std::shared_ptr<ManualExecutor> put_ = std::make_shared<ManualExecutor>();
  std::shared_ptr<ManualTimer> timer_ = std::make_shared<ManualTimer>(&clock_);
  std::shared_ptr<EmbeddingStore> memory_;
  std::shared_ptr<FaultyStore> faults_;
  std::shared_ptr<HookStore> store_;
  std::shared_ptr<Metrics> metrics_;
  std::shared_ptr<PagePool> pool_;
  std::shared_ptr<HostCache> host_;
  std::shared_ptr<GlobalCache> cache_;
};

}  // namespace embercache
