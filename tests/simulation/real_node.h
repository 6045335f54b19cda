#pragma once

// A node with real threads over its own, possibly faulty, way to a shared store; its calls wait.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "embercache/controller.h"
#include "src/base/metrics.h"
#include "src/cache/host_cache.h"
#include "src/store/faulty_store.h"
#include "tests/simulation/sim_media.h"

namespace embercache::simulation {

// No test waits so long but for a fault.
inline constexpr Duration kPatience = std::chrono::seconds(60);

// A pool of `pages` pages of 256 rows, and an arena for a few items.
inline ControllerOptions NodeOptions(uint64_t pages = 32) {
  ControllerOptions options;
  options.max_pool_bytes = pages * ((uint64_t{256} << 10) + 4096) + 100;
  options.pools = {{Modality::kImage, SimSpec().row_bytes()}};
  options.max_uncached_bytes = uint64_t{16} << 20;
  options.lookup_timeout = kPatience;
  options.prefault = false;
  return options;
}

// An item of so many rows that MakeMedia has not.
inline Media MediaOf(const std::string& name, uint32_t id, uint64_t tokens,
                     const Digest256& namespace_digest = SimSpec().namespace_digest) {
  return {.id = id,
          .key = EmbeddingKey::FromCallerHash(namespace_digest, name),
          .tokens = tokens,
          .metadata = R"({"name":")" + name + R"("})"};
}

class RealNode {
 public:
  // Without a store where `shared` is null.
  explicit RealNode(std::shared_ptr<EmbeddingStore> shared,
                    const ControllerOptions& options = NodeOptions())
      : store(shared ? std::make_shared<FaultyStore>(std::move(shared)) : nullptr),
        metrics(std::make_shared<Metrics>()),
        controller(EmbeddingCacheController::Create(options, {.store = store, .metrics = metrics})
                       .value()) {}

  // Waits for all answers. The rows are said where `known`.
  std::vector<LookupAnswer> Lookup(std::span<const Media> items, bool known = true,
                                   const EmbeddingSpec& spec = SimSpec()) {
    struct Answers {
      std::mutex mutex;
      std::condition_variable all;
      size_t left;
      std::vector<LookupAnswer> answers;
    };
    auto shared = std::make_shared<Answers>();
    shared->left = items.size();
    shared->answers.resize(items.size());
    std::vector<LookupItem> asked;
    for (const Media& media : items) {
      asked.push_back({media.key, known ? static_cast<int64_t>(media.tokens) : -1});
    }
    const TimePoint deadline = SteadyClock().Now() + kPatience;
    controller->Lookup(spec, asked, deadline, deadline, [shared](size_t i, LookupAnswer answer) {
      const std::lock_guard lock(shared->mutex);
      shared->answers[i] = std::move(answer);
      if (--shared->left == 0) shared->all.notify_all();
    });
    std::unique_lock lock(shared->mutex);
    shared->all.wait(lock, [&] { return shared->left == 0; });
    return std::move(shared->answers);
  }
  LookupAnswer Lookup(const Media& media, bool known = true) {
    return std::move(Lookup(std::span(&media, 1), known).front());
  }

  // Fills what a look-up left to its caller.
  Pin Finish(const Media& media, Claim claim) {
    EXPECT_TRUE(claim.Reserve(media.payload_bytes(), media.metadata.size()).ok());
    FillRows(media, 0, media.tokens, claim.buffers());
    Result<Pin> pin = claim.Commit(media.tokens, media.metadata);
    EXPECT_TRUE(pin.ok()) << pin.status().ToString();
    return std::move(pin).value();
  }
  // As a request does: looks it up and computes it if nobody has it.
  Source Have(const Media& media) {
    LookupAnswer answer = Lookup(media);
    EXPECT_TRUE(answer.status.ok()) << answer.status.ToString();
    if (answer.claim) {
      computed += 1;
      answer.pin = Finish(media, std::move(answer.claim));
    }
    EXPECT_EQ(CheckPin(media, answer.pin), "");
    return answer.source;
  }
  InsertResult Insert(const Media& media) {
    return controller->InsertBatch(std::span(&media.key, 1));
  }
  // Publishes, and waits until the store has answered.
  InsertResult Publish(const Media& media) {
    const InsertResult result = Insert(media);
    WaitUntilIdle();
    return result;
  }

  Status Prefetch(const std::string& request, const Media& media) {
    const LookupItem item{media.key, static_cast<int64_t>(media.tokens)};
    return controller->Prefetch(request, SimSpec(), std::span(&item, 1));
  }
  PrefetchOutcome WaitPrefetch(const std::string& request) {
    (void)controller->WaitPrefetch(request, SteadyClock().Now() + kPatience);
    return controller->PrefetchOutcomes(request).front();
  }

  void WaitUntilIdle() {
    Await([this] {
      for (const LaneView& lane : controller->Stats().lanes) {
        if (lane.queued > 0 || lane.running > 0) return false;
      }
      return true;
    });
  }
  template <typename Condition>
  static void Await(Condition condition) {
    const TimePoint end = SteadyClock().Now() + kPatience;
    while (!condition()) {
      ASSERT_LT(SteadyClock().Now(), end) << "it did not come about";
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  PoolView pool() const { return controller->Stats().pools.front(); }
  double published(const char* result) {
    return metrics->published.Add({{"result", result}}).Value();
  }
  double corruptions() { return metrics->corruptions.Add({{"backend", "memory"}}).Value(); }

  const std::shared_ptr<FaultyStore> store;
  const std::shared_ptr<Metrics> metrics;
  std::unique_ptr<EmbeddingCacheController> controller;
  std::atomic<uint64_t> computed = 0;
};

}  // namespace embercache::simulation
