#include "src/cache/eviction_policy.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace embercache {
namespace {

TimePoint At(int second) {
  return TimePoint(std::chrono::seconds(second));
}

TEST(LruPolicyTest, TheVictimIsTheOneAddedFirst) {
  const auto policy = NewEvictionPolicy(EvictionKind::kLru, 1);
  EXPECT_EQ(policy->Victim(At(0)), nullptr);
  EvictionNode a, b, c;
  policy->Add(a);
  policy->Add(b);
  policy->Add(c);
  EXPECT_EQ(policy->Victim(At(0)), &a);
  EXPECT_EQ(policy->Victim(At(0)), &a) << "it stays held";
  policy->Remove(a);
  policy->Add(a);  // used again
  EXPECT_EQ(policy->Victim(At(0)), &b);
  policy->Remove(b);
  EXPECT_EQ(policy->size(), 2U);
  policy->Remove(c);
  policy->Remove(a);
  EXPECT_EQ(policy->Victim(At(0)), nullptr);
}

class SampledCostPolicyTest : public testing::Test {
 protected:
  // A node of 1000 bytes and 10 ms, last used at second 0.
  static EvictionNode Node() {
    EvictionNode node;
    node.bytes = 1000;
    node.cost_ms = 10;
    node.last_used = At(0);
    return node;
  }
  EvictionNode* VictimOf(EvictionNode& first, EvictionNode& second) {
    const auto policy = NewEvictionPolicy(EvictionKind::kSampledCost, 1);
    policy->Add(first);
    policy->Add(second);
    EvictionNode* const victim = policy->Victim(At(100));
    policy->Remove(first);
    policy->Remove(second);
    EXPECT_EQ(policy->size(), 0U);
    return victim;
  }
};

TEST_F(SampledCostPolicyTest, CheapLargeUnusedAndOldEntriesGoFirst) {
  EvictionNode plain = Node();
  EvictionNode cheap = Node();
  cheap.cost_ms = 5;
  EXPECT_EQ(VictimOf(plain, cheap), &cheap);
  EvictionNode large = Node();
  large.bytes = 2000;
  EXPECT_EQ(VictimOf(plain, large), &large);
  EvictionNode used = Node();
  used.uses = 3;
  EXPECT_EQ(VictimOf(used, plain), &plain);
  EvictionNode young = Node();
  young.last_used = At(99);
  EXPECT_EQ(VictimOf(young, plain), &plain);
}

TEST_F(SampledCostPolicyTest, OfManyEntriesAGoodOneIsFoundAndTheSeedRepeatsIt) {
  std::vector<size_t> order[2];
  for (auto& victims : order) {
    const auto policy = NewEvictionPolicy(EvictionKind::kSampledCost, 7);
    std::deque<EvictionNode> nodes;
    for (int i = 0; i < 1000; ++i) {
      nodes.push_back(Node());
      nodes.back().last_used = At(i / 10);
      policy->Add(nodes.back());
    }
    for (int i = 0; i < 200; ++i) {
      EvictionNode* const victim = policy->Victim(At(101));
      ASSERT_NE(victim, nullptr);
      for (size_t n = 0; n < nodes.size(); ++n) {
        if (&nodes[n] == victim) victims.push_back(n);
      }
      policy->Remove(*victim);
    }
    size_t old = 0;
    for (size_t n : victims) old += n < 500 ? 1 : 0;
    EXPECT_GT(old, 180U) << "the older half is what goes";
  }
  EXPECT_EQ(order[0], order[1]);
}

}  // namespace
}  // namespace embercache
