// Faults that users of such caches reported, as tests of the cache core in virtual time: a store
// that dies, and waits that are longer than they need to be.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "embercache/controller.h"
#include "src/base/log.h"
#include "src/store/faulty_store.h"
#include "src/store/memory/memory_store.h"
#include "tests/simulation/sim_media.h"
#include "tests/simulation/sim_scheduler.h"

namespace embercache::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class TimeReports : public testing::Test {
 protected:
  struct Node {
    std::shared_ptr<FaultyStore> way;
    std::unique_ptr<EmbeddingCacheController> controller;
  };

  void SetUp() override {
    ASSERT_TRUE(SetLogLevel("error").ok());
    store_ = CreateMemoryStore({.clock = scheduler_.get()}).value();
    options_.pools = {{Modality::kImage, SimSpec().row_bytes()}};
    options_.max_pool_bytes = uint64_t{64} << 20;
    options_.prefault = false;
  }
  void TearDown() override {
    RunFor(seconds(100));
    for (const auto& node : nodes_) {
      EXPECT_TRUE(node->controller->Close(scheduler_->Now()).ok());
    }
  }

  Node& NewNode() {
    auto node = std::make_unique<Node>();
    node->way = std::make_shared<FaultyStore>(
        store_, 1, [this](Duration time) { scheduler_->SleepFor(time); });
    node->controller = EmbeddingCacheController::Create(options_, {.store = node->way,
                                                                   .get_executor = scheduler_,
                                                                   .put_executor = scheduler_,
                                                                   .timer = scheduler_,
                                                                   .clock = scheduler_.get()})
                           .value();
    nodes_.push_back(std::move(node));
    return *nodes_.back();
  }

  void RunUntil(TimePoint when) {
    bool due = false;
    (void)scheduler_->Schedule(when, [&due] { due = true; });
    while (!due && scheduler_->Step()) {
    }
  }
  void RunFor(Duration time) { RunUntil(scheduler_->Now() + time); }

  void Ask(Node& node, const Media& media, Duration time,
           std::function<void(LookupAnswer)> callback) {
    const LookupItem item{media.key, static_cast<int64_t>(media.tokens)};
    const TimePoint deadline = scheduler_->Now() + time;
    node.controller->Lookup(SimSpec(), std::span(&item, 1), deadline, deadline,
                            [callback = std::move(callback)](size_t, LookupAnswer answer) {
                              callback(std::move(answer));
                            });
  }
  static Pin Finish(const Media& media, Claim claim) {
    EXPECT_TRUE(claim.Reserve(media.payload_bytes(), media.metadata.size()).ok());
    FillRows(media, 0, media.tokens, claim.buffers());
    return claim.Commit(media.tokens, media.metadata).value();
  }
  void Publish(Node& node, const Media& media) {
    Ask(node, media, seconds(1), [&](LookupAnswer answer) {
      if (answer.claim) (void)Finish(media, std::move(answer.claim));
    });
    RunFor(seconds(1));
    (void)node.controller->InsertBatch(std::span(&media.key, 1));
    RunFor(seconds(1));
  }

  const std::shared_ptr<SimScheduler> scheduler_ = std::make_shared<SimScheduler>(1);
  std::shared_ptr<EmbeddingStore> store_;
  ControllerOptions options_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

Media Rows(const std::string& name, uint64_t rows) {
  return {.id = static_cast<uint32_t>(rows),
          .key = EmbeddingKey::FromCallerHash(SimSpec().namespace_digest, name),
          .tokens = rows,
          .metadata = ""};
}

// The store dies, and comes back empty; all answers stay right, and none is late.
TEST_F(TimeReports, AStoreThatDiesAndComesBackEmptyCostsTimeAndNothingElse) {
  constexpr Duration kLimit = milliseconds(500);
  options_.max_pool_bytes = uint64_t{4} * 260 << 10;  // fewer than there are images
  Node& first = NewNode();
  Node& second = NewNode();
  const std::vector<Media> media = MakeMedia(20);
  uint64_t answers = 0;
  uint64_t hits_from_store = 0;
  const auto request = [&](Node& node, const Media& item) {
    const TimePoint asked = scheduler_->Now();
    Ask(node, item, kLimit, [&, asked, item](LookupAnswer answer) {
      EXPECT_LE(scheduler_->Now() - asked, kLimit);
      if (answer.pin && answer.source == Source::kGlobal) ++hits_from_store;
      if (answer.claim) answer.pin = Finish(item, std::move(answer.claim));
      EXPECT_EQ(CheckPin(item, answer.pin), "");
      ++answers;
      (void)node.controller->InsertBatch(std::span(&item.key, 1));
    });
  };
  uint64_t asked = 0;
  const auto serve = [&](Duration time, bool both) {
    for (const TimePoint end = scheduler_->Now() + time; scheduler_->Now() < end;
         RunFor(milliseconds(20))) {
      request(first, media[asked++ % media.size()]);
      if (both) request(second, media[asked++ % media.size()]);
    }
  };
  const auto kill = [&](Node& node) {
    for (const StoreOp op : {StoreOp::kStat, StoreOp::kGet, StoreOp::kPut}) {
      node.way->Inject({.op = op, .kind = FaultKind::kError});
    }
  };

  serve(seconds(10), true);
  EXPECT_GT(hits_from_store, 100U);
  kill(first);
  kill(second);
  serve(seconds(2), true);
  EXPECT_TRUE(first.controller->Stats().lanes[0].breaker_open);
  const uint64_t reads = first.way->Seen(StoreOp::kGet);
  serve(seconds(18), true);
  EXPECT_LE(first.way->Seen(StoreOp::kGet) - reads, 18U) << "more than a probe a second";

  for (const Media& item : media) {
    const std::string key = item.key.Text();
    const RemoveItem remove{.key = key};
    (void)store_->BatchRemove(std::span(&remove, 1), {});
  }
  first.way->Clear();
  second.way->Clear();
  hits_from_store = 0;
  serve(seconds(45), true);
  EXPECT_FALSE(first.controller->Stats().lanes[0].breaker_open);
  EXPECT_GT(hits_from_store, 100U);

  kill(second);
  serve(seconds(10), false);
  RunFor(kLimit);
  EXPECT_EQ(answers, asked);
}

TEST_F(TimeReports, ManyWhoWaitForTheStoreAreAnsweredWhenItAnswers) {
  constexpr size_t kRequests = 128;
  options_.get_workers = kRequests;
  Node& node = NewNode();
  node.way->Inject({.op = StoreOp::kGet, .kind = FaultKind::kDelay, .delay = milliseconds(500)});
  const TimePoint start = scheduler_->Now();
  size_t answered = 0;
  for (size_t i = 0; i < kRequests; ++i) {
    Ask(node, Rows(std::to_string(i), 1), seconds(5), [&](const LookupAnswer&) { ++answered; });
  }
  while (answered < kRequests && scheduler_->Step()) {
  }
  EXPECT_LE(scheduler_->Now() - start, milliseconds(502));
}

TEST_F(TimeReports, ThoseWhoWaitForAnEncoderAreAnsweredTheMomentItIsDone) {
  Node& node = NewNode();
  const Media media = Rows("photo", 3);
  Claim leader;
  Ask(node, media, seconds(5), [&](LookupAnswer answer) { leader = std::move(answer.claim); });
  RunFor(seconds(1));
  ASSERT_TRUE(leader);
  size_t answered = 0;
  for (size_t i = 0; i < 128; ++i) {
    Ask(node, media, seconds(60), [&](const LookupAnswer& answer) {
      EXPECT_EQ(CheckPin(media, answer.pin), "");
      ++answered;
    });
  }
  RunFor(seconds(30));
  EXPECT_EQ(answered, 0U);
  (void)Finish(media, std::move(leader));
  EXPECT_EQ(answered, 128U);
}

TEST_F(TimeReports, SlowLargeReadsDoNotHoldASmallOneUp) {
  Node& writer = NewNode();
  Node& reader = NewNode();
  std::vector<Media> large;
  for (int i = 0; i < 6; ++i) {
    large.push_back(Rows("large" + std::to_string(i), 2048 + static_cast<uint64_t>(i)));
    Publish(writer, large.back());
    reader.way->Inject({.op = StoreOp::kGet,
                        .kind = FaultKind::kDelay,
                        .key = large.back().key.Text(),
                        .delay = seconds(10)});
  }
  const Media small = Rows("small", 16);
  Publish(writer, small);

  size_t large_answered = 0;
  for (const Media& media : large) {
    Ask(reader, media, seconds(60), [&](const LookupAnswer& answer) {
      EXPECT_EQ(CheckPin(media, answer.pin), "");
      ++large_answered;
    });
  }
  RunFor(seconds(1));
  const TimePoint start = scheduler_->Now();
  TimePoint answered;
  Ask(reader, small, seconds(60), [&](const LookupAnswer& answer) {
    EXPECT_EQ(CheckPin(small, answer.pin), "");
    answered = scheduler_->Now();
  });
  RunFor(seconds(1));
  EXPECT_EQ(large_answered, 0U);
  ASSERT_NE(answered, TimePoint());
  EXPECT_LE(answered - start, milliseconds(20));
  RunFor(seconds(60));
  EXPECT_EQ(large_answered, large.size());
}

// Writes that take long do not hold up the reads that requests wait for.
TEST_F(TimeReports, SlowWritesDoNotHoldReadsUp) {
  const Media media = Rows("photo", 3);
  Publish(NewNode(), media);
  Node& node = NewNode();
  node.way->Inject({.op = StoreOp::kPut, .kind = FaultKind::kDelay, .delay = seconds(20)});
  for (int i = 0; i < 4; ++i) {
    const Media other = Rows("other" + std::to_string(i), 3);
    Ask(node, other, seconds(1),
        [&, other](LookupAnswer answer) { (void)Finish(other, std::move(answer.claim)); });
    RunFor(milliseconds(10));
    (void)node.controller->InsertBatch(std::span(&other.key, 1));
  }
  RunFor(milliseconds(10));
  EXPECT_EQ(node.controller->Stats().lanes[1].running, options_.put_workers);
  const TimePoint start = scheduler_->Now();
  bool answered = false;
  Ask(node, media, seconds(1), [&](const LookupAnswer& answer) {
    EXPECT_EQ(CheckPin(media, answer.pin), "");
    EXPECT_LE(scheduler_->Now() - start, milliseconds(2));
    answered = true;
  });
  RunFor(seconds(2));
  EXPECT_TRUE(answered);
}

}  // namespace
}  // namespace embercache::simulation
