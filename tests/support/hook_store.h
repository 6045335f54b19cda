#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "embercache/store.h"

namespace embercache {

// A store in front of another one that stops in a test's hook before each call, and shows the test
// each answer before it is given, to change it. Hooks are set before the first call.
class HookStore final : public EmbeddingStore {
 public:
  explicit HookStore(std::shared_ptr<EmbeddingStore> inner) : inner_(std::move(inner)) {}

  std::function<void()> before;
  std::function<void(std::vector<StatResult>&)> on_stat;  // of exists too
  std::function<void(std::vector<GetResult>&)> on_get;
  std::function<void(std::vector<PutResult>&)> on_put;
  std::function<void(std::vector<RemoveResult>&)> on_remove;
  std::atomic<uint64_t> era{0};
  Duration time_to_live = Duration::max();
  // Calls, not items.
  std::atomic<int> stats{0}, gets{0}, puts{0}, removes{0};

  std::string_view name() const override { return inner_->name(); }
  std::vector<StatResult> BatchStat(std::span<const std::string_view> keys,
                                    const CallContext& context) override {
    Enter(stats);
    return Show(inner_->BatchStat(keys, context), on_stat);
  }
  std::vector<StatResult> BatchIsExist(std::span<const std::string_view> keys,
                                       const CallContext& context) override {
    Enter(stats);
    return Show(inner_->BatchIsExist(keys, context), on_stat);
  }
  std::vector<GetResult> BatchGetIntoMultiBuffers(std::span<const GetItem> items,
                                                  const CallContext& context) override {
    Enter(gets);
    CallContext inner_context = context;
    if (on_get) inner_context.received = nullptr;
    return Show(inner_->BatchGetIntoMultiBuffers(items, inner_context), on_get);
  }
  std::vector<PutResult> BatchPutFromMultiBuffers(std::span<const PutItem> items,
                                                  const CallContext& context) override {
    Enter(puts);
    return Show(inner_->BatchPutFromMultiBuffers(items, context), on_put);
  }
  std::vector<RemoveResult> BatchRemove(std::span<const RemoveItem> items,
                                        const CallContext& context) override {
    Enter(removes);
    return Show(inner_->BatchRemove(items, context), on_remove);
  }
  StoreHealth Health() override { return inner_->Health(); }
  uint64_t Era() const override { return era; }
  Duration TimeToLive() const override { return time_to_live; }
  Status Close(TimePoint deadline) override { return inner_->Close(deadline); }

 private:
  void Enter(std::atomic<int>& calls) {
    ++calls;
    if (before) before();
  }
  template <typename Results>
  static Results Show(Results results, const std::function<void(Results&)>& hook) {
    if (hook) hook(results);
    return results;
  }

  const std::shared_ptr<EmbeddingStore> inner_;
};

}  // namespace embercache
