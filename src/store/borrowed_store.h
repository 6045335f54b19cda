#pragma once

#include <memory>
#include <utility>

#include "embercache/store.h"

namespace embercache {

// A store that somebody else closes: Close leaves it open. For several caches, one after the other,
// over one store. Thread-safe.
class BorrowedStore final : public EmbeddingStore {
 public:
  explicit BorrowedStore(std::shared_ptr<EmbeddingStore> store) : store_(std::move(store)) {}

  std::string_view name() const override { return store_->name(); }
  std::vector<StatResult> BatchIsExist(std::span<const std::string_view> keys,
                                       const CallContext& context) override {
    return store_->BatchIsExist(keys, context);
  }
  std::vector<StatResult> BatchStat(std::span<const std::string_view> keys,
                                    const CallContext& context) override {
    return store_->BatchStat(keys, context);
  }
  std::vector<GetResult> BatchGetIntoMultiBuffers(std::span<const GetItem> items,
                                                  const CallContext& context) override {
    return store_->BatchGetIntoMultiBuffers(items, context);
  }
  std::vector<PutResult> BatchPutFromMultiBuffers(std::span<const PutItem> items,
                                                  const CallContext& context) override {
    return store_->BatchPutFromMultiBuffers(items, context);
  }
  std::vector<RemoveResult> BatchRemove(std::span<const RemoveItem> items,
                                        const CallContext& context) override {
    return store_->BatchRemove(items, context);
  }
  Result<ListPage> List(std::string_view cursor, size_t limit,
                        const CallContext& context) override {
    return store_->List(cursor, limit, context);
  }
  Status RegisterBuffer(const BufferRegion& region) override {
    return store_->RegisterBuffer(region);
  }
  Status UnregisterBuffer(const BufferRegion& region) override {
    return store_->UnregisterBuffer(region);
  }
  std::string GetKey(std::string_view hash) const override { return store_->GetKey(hash); }
  StoreHealth Health() override { return store_->Health(); }
  uint64_t Era() const override { return store_->Era(); }
  Duration TimeToLive() const override { return store_->TimeToLive(); }
  std::string DescribeJson() const override { return store_->DescribeJson(); }
  Status Close(TimePoint) override { return Status::Ok(); }

 private:
  const std::shared_ptr<EmbeddingStore> store_;
};

}  // namespace embercache
