#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "embercache/embedding.h"
#include "embercache/store.h"
#include "src/base/mutex.h"

namespace embercache {

// Stands before a store of payloads alone, which are under its GetKey(hash). For the cache above it
// looks like any other store: on a put the envelope is taken off, on a get one is made for the
// bytes that came, of which therefore the length alone has been checked. A checksum made of those
// bytes would say nothing of them, so the trailer has none, and GlobalCache, which has to be right
// above, asks for none. Thread-safe.
class RawStore final : public EmbeddingStore {
 public:
  explicit RawStore(std::shared_ptr<EmbeddingStore> payloads) : payloads_(std::move(payloads)) {}

  // What a key alone does not tell. Has to be told before a call that uses the key; kept for the
  // last 65536 keys at least. `tokens` is 0 where it is not known: no get then.
  void Remember(const EmbeddingKey& key, std::string_view hash, const EmbeddingSpec& spec,
                uint64_t tokens);

  std::string_view name() const override { return payloads_->name(); }
  std::vector<StatResult> BatchIsExist(std::span<const std::string_view> keys,
                                       const CallContext& context) override;
  std::vector<StatResult> BatchStat(std::span<const std::string_view> keys,
                                    const CallContext& context) override;
  std::vector<GetResult> BatchGetIntoMultiBuffers(std::span<const GetItem> items,
                                                  const CallContext& context) override;
  std::vector<PutResult> BatchPutFromMultiBuffers(std::span<const PutItem> items,
                                                  const CallContext& context) override;
  std::vector<RemoveResult> BatchRemove(std::span<const RemoveItem> items,
                                        const CallContext& context) override;
  Status RegisterBuffer(const BufferRegion& region) override {
    return payloads_->RegisterBuffer(region);
  }
  Status UnregisterBuffer(const BufferRegion& region) override {
    return payloads_->UnregisterBuffer(region);
  }
  StoreHealth Health() override { return payloads_->Health(); }
  uint64_t Era() const override { return payloads_->Era(); }
  Duration TimeToLive() const override { return payloads_->TimeToLive(); }
  std::string DescribeJson() const override { return payloads_->DescribeJson(); }
  Status Close(TimePoint deadline) override { return payloads_->Close(deadline); }

 private:
  struct Name {
    EmbeddingKey key;
    std::string payload_key;
    EmbeddingSpec spec;
    uint64_t tokens = 0;
  };
  using Names = std::unordered_map<std::string, Name>;

  // False where it was forgotten, or never told.
  bool Find(std::string_view key, Name* name) const;

  const std::shared_ptr<EmbeddingStore> payloads_;
  mutable Mutex mutex_;
  Names recent_ GUARDED_BY(mutex_);
  Names older_ GUARDED_BY(mutex_);
};

}  // namespace embercache
