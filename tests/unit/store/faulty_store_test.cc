#include "src/store/faulty_store.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <thread>

#include "src/store/memory/memory_store.h"
#include "tests/conformance/payload.h"

namespace embercache {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class FaultyStoreTest : public testing::Test {
 protected:
  const Bytes bytes_ = PayloadOf("payload", 10'000);
  std::shared_ptr<EmbeddingStore> inner_ = *CreateMemoryStore({});
  std::vector<Duration> sleeps_;
  FaultyStore store_{inner_, 1, [this](Duration time) { sleeps_.push_back(time); }};
  Bytes got_;

  GetResult Get(std::string_view key = "k") { return GetOne(store_, key, bytes_.size(), &got_); }
  PutResult Put(std::string_view key = "k") { return PutOne(store_, key, bytes_); }
  // A rule with what most tests say.
  static FaultRule Rule(StoreOp op, FaultKind kind, std::string key = "") {
    FaultRule rule;
    rule.op = op;
    rule.kind = kind;
    rule.key = std::move(key);
    return rule;
  }
  size_t UntouchedBytes() const {
    return static_cast<size_t>(std::count(got_.begin(), got_.end(), std::byte{0xA5}));
  }
};

TEST_F(FaultyStoreTest, RulesStrikeByOperationKeyAndCount) {
  Put("k");
  Put("other");
  FaultRule rule = Rule(StoreOp::kGet, FaultKind::kError, "k");
  rule.skip = 1;
  rule.count = 2;
  rule.status = Status::Corruption("mine");
  const size_t number = store_.Inject(rule);
  EXPECT_EQ(Get("other").outcome, GetOutcome::kHit);
  EXPECT_TRUE(StatOne(store_, "k").found);
  EXPECT_EQ(Get().outcome, GetOutcome::kHit);
  for (int i = 0; i < 2; ++i) {
    const GetResult get = Get();
    EXPECT_EQ(get.outcome, GetOutcome::kFailed);
    EXPECT_EQ(get.status.ToString(), "CORRUPTION: mine");
  }
  EXPECT_EQ(Get().outcome, GetOutcome::kHit);
  EXPECT_EQ(store_.Struck(number), 2U);
  EXPECT_EQ(store_.Seen(StoreOp::kGet), 5U);
}

TEST_F(FaultyStoreTest, AClearedRuleStrikesNoMore) {
  Put();
  store_.Inject(Rule(StoreOp::kGet, FaultKind::kError));
  EXPECT_EQ(Get().outcome, GetOutcome::kFailed);
  store_.Clear();
  EXPECT_EQ(Get().outcome, GetOutcome::kHit);
}

TEST_F(FaultyStoreTest, TheSameSeedStrikesTheSameItems) {
  const auto strikes = [&](uint64_t seed) {
    FaultyStore store(inner_, seed);
    FaultRule rule = Rule(StoreOp::kStat, FaultKind::kError);
    rule.probability = 0.5;
    store.Inject(rule);
    std::string pattern;
    for (int i = 0; i < 64; ++i) pattern += StatOne(store, "k").status.ok() ? '.' : 'x';
    return pattern;
  };
  EXPECT_EQ(strikes(7), strikes(7));
  EXPECT_NE(strikes(7), strikes(8));
  EXPECT_NE(strikes(7).find('x'), std::string::npos);
  EXPECT_NE(strikes(7).find('.'), std::string::npos);
}

TEST_F(FaultyStoreTest, OneItemOfABatchFailsAlone) {
  store_.Inject(Rule(StoreOp::kPut, FaultKind::kError, "b"));
  const std::vector<std::string_view> keys = {"a", "b", "c"};
  const std::vector<ConstBuffer> sources(3, bytes_);
  const auto puts = store_.BatchPut(keys, sources, {});
  EXPECT_EQ(puts[0].outcome, PutOutcome::kStored);
  EXPECT_EQ(puts[1].outcome, PutOutcome::kFailed);
  EXPECT_EQ(puts[2].outcome, PutOutcome::kStored);
  EXPECT_FALSE(StatOne(*inner_, "b").found);
  EXPECT_TRUE(StatOne(*inner_, "c").found);
}

TEST_F(FaultyStoreTest, DelaysAddToWhatFollows) {
  FaultRule delay = Rule(StoreOp::kGet, FaultKind::kDelay);
  delay.delay = seconds(100);
  store_.Inject(delay);
  store_.Inject(Rule(StoreOp::kGet, FaultKind::kError));
  EXPECT_EQ(Get().outcome, GetOutcome::kFailed);
  EXPECT_EQ(sleeps_, std::vector<Duration>{seconds(100)});
}

TEST_F(FaultyStoreTest, AShortReadFailsWithHalfOfTheBytes) {
  Put();
  store_.Inject(Rule(StoreOp::kGet, FaultKind::kShortRead));
  EXPECT_EQ(Get().outcome, GetOutcome::kFailed);
  EXPECT_GE(UntouchedBytes(), bytes_.size() / 2);
  EXPECT_TRUE(std::equal(got_.begin(), got_.begin() + 5000, bytes_.begin()));
}

TEST_F(FaultyStoreTest, ALyingReadIsAHitWithHalfOfTheBytes) {
  Put();
  store_.Inject(Rule(StoreOp::kGet, FaultKind::kLyingRead));
  const GetResult get = Get();
  EXPECT_EQ(get.outcome, GetOutcome::kHit);
  EXPECT_EQ(get.bytes, bytes_.size());
  EXPECT_GE(UntouchedBytes(), bytes_.size() / 2);
}

TEST_F(FaultyStoreTest, AFlippedByteIsAHitWithOneBitWrong) {
  Put();
  store_.Inject(Rule(StoreOp::kGet, FaultKind::kFlipByte));
  EXPECT_EQ(Get().outcome, GetOutcome::kHit);
  int wrong_bits = 0;
  for (size_t i = 0; i < bytes_.size(); ++i) {
    wrong_bits += __builtin_popcount(std::to_integer<unsigned>(got_[i] ^ bytes_[i]));
  }
  EXPECT_EQ(wrong_bits, 1);
}

TEST_F(FaultyStoreTest, ALostWriteLooksStored) {
  store_.Inject(Rule(StoreOp::kPut, FaultKind::kLostWrite));
  EXPECT_EQ(Put().outcome, PutOutcome::kStored);
  EXPECT_FALSE(StatOne(*inner_, "k").found);
}

TEST_F(FaultyStoreTest, AShortWriteLooksStored) {
  store_.Inject(Rule(StoreOp::kPut, FaultKind::kShortWrite));
  EXPECT_EQ(Put().outcome, PutOutcome::kStored);
  EXPECT_EQ(StatOne(*inner_, "k").bytes, bytes_.size() / 2);
}

TEST_F(FaultyStoreTest, ALostReplyStoresAndFails) {
  store_.Inject(Rule(StoreOp::kPut, FaultKind::kLostReply));
  EXPECT_EQ(Put().outcome, PutOutcome::kFailed);
  EXPECT_EQ(StatOne(*inner_, "k").bytes, bytes_.size());
}

TEST_F(FaultyStoreTest, APhantomIsFoundButNotThere) {
  store_.Inject(Rule(StoreOp::kExist, FaultKind::kPhantom));
  const std::string_view key = "k";
  EXPECT_TRUE(store_.BatchIsExist({&key, 1}, {}).at(0).found);
  EXPECT_EQ(Get().outcome, GetOutcome::kMiss);
}

TEST_F(FaultyStoreTest, AnAnswerMayLackItsLastResult) {
  store_.Inject(Rule(StoreOp::kGet, FaultKind::kFewResults, "b"));
  const std::vector<std::string_view> keys = {"a", "b"};
  const std::vector<MutableBuffer> targets(2);
  EXPECT_EQ(store_.BatchGet(keys, targets, {}).size(), 1U);
}

TEST_F(FaultyStoreTest, AThrowLeavesTheStoreUsable) {
  FaultRule rule = Rule(StoreOp::kGet, FaultKind::kThrow);
  rule.count = 1;
  store_.Inject(rule);
  EXPECT_THROW(Get(), std::runtime_error);
  EXPECT_EQ(Get().outcome, GetOutcome::kMiss);
  EXPECT_TRUE(store_.Close(SteadyClock().Now()).ok());
}

TEST_F(FaultyStoreTest, AHangHoldsTheCallUntilItIsReleased) {
  Put();
  store_.Inject(Rule(StoreOp::kGet, FaultKind::kHang));
  GetResult get;
  std::thread caller([&] { get = Get(); });
  ASSERT_TRUE(store_.WaitUntilHanging(1, SteadyClock().Now() + seconds(60)));
  EXPECT_EQ(UntouchedBytes(), bytes_.size());
  EXPECT_EQ(store_.Close(SteadyClock().Now() + milliseconds(1)).code(),
            StatusCode::kDeadlineExceeded);
  store_.Release();
  caller.join();
  EXPECT_EQ(get.outcome, GetOutcome::kHit);
  EXPECT_EQ(got_, bytes_);
  EXPECT_TRUE(store_.Close(SteadyClock().Now()).ok());
}

TEST_F(FaultyStoreTest, ClosingOneNodesFrontLeavesTheSharedStoreOpen) {
  FaultyStore other(inner_);
  EXPECT_TRUE(other.Close(SteadyClock().Now()).ok());
  EXPECT_EQ(StatOne(other, "k").status.code(), StatusCode::kCancelled);
  EXPECT_EQ(Put().outcome, PutOutcome::kStored);
}

}  // namespace
}  // namespace embercache
