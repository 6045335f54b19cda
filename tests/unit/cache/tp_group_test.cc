#include "embercache/tp_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/controller_fixture.h"

namespace embercache {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;

TimePoint In(Duration time) {
  return SteadyClock().Now() + time;
}

// What each rank got when all call at once.
template <typename T>
std::vector<T> OnAllRanks(size_t ranks, const std::function<T(size_t rank)>& call) {
  std::vector<std::optional<T>> results(ranks);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { results[rank].emplace(call(rank)); });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<T> all;
  for (std::optional<T>& result : results) all.push_back(*std::move(result));
  return all;
}

using Reduced = Result<std::vector<uint8_t>>;

TEST(TpGroupTest, EveryRankGetsTheMinimumOfEachElementRoundAfterRound) {
  const auto group = NewInProcessTpGroup(3);
  for (uint8_t round = 0; round < 100; ++round) {
    const auto results = OnAllRanks<Reduced>(3, [&](size_t rank) {
      const std::vector<uint8_t> values = {static_cast<uint8_t>(round + rank),
                                           static_cast<uint8_t>(round + 2 - rank), 7};
      return group[rank]->AllReduceMin(values, In(seconds(100)));
    });
    for (const Reduced& result : results) {
      ASSERT_TRUE(result.ok()) << result.status().ToString();
      EXPECT_THAT(*result, ElementsAre(round, round, 7));
    }
  }
  EXPECT_EQ(group[2]->rank(), 2);
  EXPECT_EQ(group[2]->size(), 3);
}

TEST(TpGroupTest, WhereARankStaysAwayTheOthersAreToldInTimeAndTheNextRoundIsGood) {
  const auto group = NewInProcessTpGroup(2);
  const std::vector<uint8_t> values = {1};
  EXPECT_EQ(group[0]->AllReduceMin(values, In(milliseconds(10))).status().code(),
            StatusCode::kDeadlineExceeded);
  const auto results = OnAllRanks<Reduced>(2, [&](size_t rank) {
    const std::vector<uint8_t> value = {static_cast<uint8_t>(rank + 4)};
    return group[rank]->AllReduceMin(value, In(seconds(100)));
  });
  for (const Reduced& result : results) EXPECT_THAT(result.value(), ElementsAre(4));
}

TEST(TpGroupTest, ValuesOfDifferentLengthsAreAnErrorForAll) {
  const auto group = NewInProcessTpGroup(2);
  const auto results = OnAllRanks<Reduced>(2, [&](size_t rank) {
    return group[rank]->AllReduceMin(std::vector<uint8_t>(rank + 1), In(seconds(100)));
  });
  for (const Reduced& result : results) {
    EXPECT_EQ(result.status().code(), StatusCode::kInvalid);
  }
}

TEST(TpGroupTest, ACallbackReducesForAGroupOfSomebodyElses) {
  const auto group = NewCallbackTpGroup(1, 2, [](std::span<const uint8_t> values, TimePoint) {
    return Reduced(std::vector<uint8_t>(values.size(), 9));
  });
  EXPECT_EQ(group->rank(), 1);
  EXPECT_EQ(group->size(), 2);
  EXPECT_THAT(group->AllReduceMin(std::vector<uint8_t>{1, 2}, In(seconds(1))).value(),
              ElementsAre(9, 9));
}

class TpPrefetchTest : public testing::Test {
 protected:
  void Make(bool all_rank_get, Duration timeout = seconds(100)) {
    const auto group = NewInProcessTpGroup(2);
    for (size_t rank = 0; rank < 2; ++rank) {
      ControllerOptions options = Node::Options();
      options.tp_group = group[rank];
      options.all_rank_get = all_rank_get;
      options.tp_timeout = timeout;
      ranks_.push_back(std::make_unique<Node>(store_, options));
    }
    for (const uint64_t number : {1U, 2U}) {
      WriteObject(*store_, TestKey(number), MakeObject(number, TestInfo(number, 4)));
    }
  }
  void Prefetch() {
    for (const auto& rank : ranks_) {
      ASSERT_TRUE(rank->Prefetch("r", {{TestKey(1), 4}, {TestKey(2), 4}, {TestKey(3), 4}}).ok());
    }
  }
  // The in-process group waits in real time, which the nodes' clocks do not tell.
  std::vector<PrefetchState> States() {
    return OnAllRanks<PrefetchState>(
        2, [&](size_t rank) { return ranks_[rank]->controller->CheckPrefetchProgress("r"); });
  }
  std::vector<std::vector<bool>> Masks() {
    return OnAllRanks<std::vector<bool>>(
        2, [&](size_t rank) { return ranks_[rank]->controller->PrefetchMask("r", 3); });
  }

  std::shared_ptr<EmbeddingStore> store_ = NewMemoryStore();
  LogCapture log_;
  std::vector<std::unique_ptr<Node>> ranks_;
};

TEST_F(TpPrefetchTest, OnlyTheLeadHasAPoolAndFetches) {
  Make(false);
  Prefetch();
  EXPECT_EQ(ranks_[1]->controller->Stats().pools.size(), 1U) << "the arena alone";
  EXPECT_FALSE(ranks_[1]->controller->has_store());
  ranks_[0]->Settle();
  EXPECT_EQ(ranks_[0]->Pool().entries, 2U);
}

}  // namespace
}  // namespace embercache
