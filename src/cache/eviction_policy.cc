#include "src/cache/eviction_policy.h"

#include <algorithm>
#include <cassert>
#include <random>
#include <vector>

namespace embercache {
namespace {

class LruPolicy final : public EvictionPolicy {
 public:
  ~LruPolicy() override { list_.clear(); }
  void Add(EvictionNode& node) override { list_.push_back(node); }
  void Remove(EvictionNode& node) override { list_.erase(list_.iterator_to(node)); }
  EvictionNode* Victim(TimePoint) override { return list_.empty() ? nullptr : &list_.front(); }
  size_t size() const override { return list_.size(); }

 private:
  boost::intrusive::list<EvictionNode> list_;  // least recently used first
};

class SampledCostPolicy final : public EvictionPolicy {
 public:
  explicit SampledCostPolicy(uint64_t seed) : random_(seed) {}

  void Add(EvictionNode& node) override {
    node.slot = nodes_.size();
    nodes_.push_back(&node);
  }

  void Remove(EvictionNode& node) override {
    assert(nodes_[node.slot] == &node);
    nodes_[node.slot] = nodes_.back();
    nodes_[node.slot]->slot = node.slot;
    nodes_.pop_back();
  }

  EvictionNode* Victim(TimePoint now) override {
    EvictionNode* best = nullptr;
    double best_score = -1;
    const size_t samples = std::min(nodes_.size(), kSamples);
    for (size_t i = 0; i < samples; ++i) {
      // All of them when there are few, so that a small cache evicts exactly.
      const size_t index = nodes_.size() <= kSamples ? i : random_() % nodes_.size();
      const double score = Score(*nodes_[index], now);
      if (score > best_score) {
        best_score = score;
        best = nodes_[index];
      }
    }
    return best;
  }

  size_t size() const override { return nodes_.size(); }

 private:
  static constexpr size_t kSamples = 16;

  static double Score(const EvictionNode& node, TimePoint now) {
    const double age = std::max(0.0, std::chrono::duration<double>(now - node.last_used).count());
    const double cost = node.cost_ms > 0 ? node.cost_ms : 1;
    return age / (1.0 + node.uses) * static_cast<double>(node.bytes) / cost;
  }

  std::mt19937_64 random_;
  std::vector<EvictionNode*> nodes_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> NewEvictionPolicy(EvictionKind kind, uint64_t seed) {
  if (kind == EvictionKind::kSampledCost) return std::make_unique<SampledCostPolicy>(seed);
  return std::make_unique<LruPolicy>();
}

}  // namespace embercache
