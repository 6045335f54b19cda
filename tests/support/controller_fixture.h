#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "embercache/controller.h"
#include "src/base/metrics.h"
#include "src/cache/host_cache.h"
#include "src/store/faulty_store.h"
#include "src/store/memory/memory_store.h"
#include "tests/support/log_capture.h"
#include "tests/support/manual_runtime.h"
#include "tests/support/stored_object.h"

namespace embercache {

// The answers of one look-up; each item is to be answered once.
struct Answers {
  explicit Answers(size_t items) : answers(items) {}

  LookupCallback callback() {
    return [this](size_t index, LookupAnswer answer) {
      ASSERT_FALSE(answers.at(index)) << "item " << index << " was answered twice";
      const int set = (answer.pin ? 1 : 0) + (answer.claim ? 1 : 0) + (answer.status.ok() ? 0 : 1);
      ASSERT_EQ(set, 1) << "item " << index;
      answers[index] = std::move(answer);
    };
  }
  LookupAnswer& operator[](size_t index) { return answers.at(index).value(); }
  bool has(size_t index) const { return answers.at(index).has_value(); }

  std::vector<std::optional<LookupAnswer>> answers;
};

// One node before a memory store that others may share, with time and threads by hand. Its pool has
// kPages pages of 256 test rows each.
struct Node {
  static constexpr uint64_t kPages = 8;
  static constexpr uint64_t kRowsAPage = 256;

  explicit Node(std::shared_ptr<EmbeddingStore> store, ControllerOptions options = Options())
      : metrics(std::make_shared<Metrics>()) {
    if (store) faults = std::make_shared<FaultyStore>(std::move(store));
    controller = EmbeddingCacheController::Create(std::move(options), {.store = faults,
                                                                       .get_executor = get,
                                                                       .put_executor = put,
                                                                       .timer = timer,
                                                                       .clock = &clock,
                                                                       .metrics = metrics})
                     .value();
  }
  // Handles of a test may go after the node: what they need lives on. A task that never ran would
  // keep its lane, and the lane the tasks.
  ~Node() {
    controller.reset();
    Settle();
  }

  static ControllerOptions Options() {
    ControllerOptions options;
    options.max_pool_bytes = kPages * (PageBytesFor(kTestRowBytes) + kBlockBytes) + 1000;
    options.pools = {{.modality = Modality::kImage, .row_bytes = kTestRowBytes}};
    options.max_uncached_bytes = 16 * (uint64_t{68} << 10);
    options.prefault = false;
    return options;
  }

  void Settle() {
    while (get->RunAll() + put->RunAll() > 0) {
    }
  }
  void Advance(Duration time) {
    clock.Advance(time);
    timer->RunDue();
  }

  // Within a second each, for the store and for others.
  void Lookup(const std::vector<LookupItem>& items, Answers* answers,
              Duration timeout = std::chrono::seconds(1)) {
    controller->Lookup(TestSpec(), items, clock.Now() + timeout, clock.Now() + timeout,
                       answers->callback());
    Check();
  }
  LookupAnswer LookupOne(uint64_t number, int64_t tokens = -1) {
    Answers answers(1);
    Lookup({{TestKey(number), tokens}}, &answers);
    Settle();
    EXPECT_TRUE(answers.has(0));
    return answers.has(0) ? std::move(answers[0]) : LookupAnswer();
  }
  // Looks the item up and computes it where that is this node's part.
  Pin Encode(uint64_t number, uint64_t tokens) {
    LookupAnswer answer = LookupOne(number, static_cast<int64_t>(tokens));
    if (answer.claim) return Compute(std::move(answer.claim), number, tokens);
    EXPECT_TRUE(answer.pin) << answer.status.ToString();
    return std::move(answer.pin);
  }
  Pin Compute(Claim claim, uint64_t tag, uint64_t tokens) {
    const Status reserved = claim.Reserve(tokens * kTestRowBytes, 0);
    EXPECT_TRUE(reserved.ok()) << reserved.ToString();
    FillWith(tag, claim.buffers());
    Result<Pin> pin = claim.Commit(tokens, "");
    Check();
    return *std::move(pin);
  }
  InsertResult Insert(const std::vector<uint64_t>& numbers) {
    std::vector<EmbeddingKey> keys;
    for (const uint64_t number : numbers) keys.push_back(TestKey(number));
    const InsertResult result = controller->InsertBatch(keys);
    Check();
    return result;
  }
  Status Prefetch(const std::string& request, const std::vector<LookupItem>& items) {
    return controller->Prefetch(request, TestSpec(), items);
  }

  void Check() const {
    const Status status = controller->host_cache().CheckInvariants();
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  PoolView Pool() const { return controller->Stats().pools.front(); }
  PoolView Arena() const { return controller->Stats().pools.back(); }
  double Inserted(const char* kind) const { return metrics->insert.Add({{"kind", kind}}).Value(); }
  double Published(const char* result) const {
    return metrics->published.Add({{"result", result}}).Value();
  }

  ManualClock clock;
  std::shared_ptr<ManualExecutor> get = std::make_shared<ManualExecutor>();
  std::shared_ptr<ManualExecutor> put = std::make_shared<ManualExecutor>();
  std::shared_ptr<ManualTimer> timer = std::make_shared<ManualTimer>(&clock);
  std::shared_ptr<Metrics> metrics;
  std::shared_ptr<FaultyStore> faults;
  std::unique_ptr<EmbeddingCacheController> controller;
};

// For nodes with clocks of their own: for the store no time passes, so no deadline does.
inline std::shared_ptr<EmbeddingStore> NewMemoryStore() {
  static const ManualClock stopped;
  return CreateMemoryStore({.clock = &stopped}).value();
}

}  // namespace embercache
