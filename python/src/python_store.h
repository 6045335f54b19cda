#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "embercache/embedding.h"
#include "embercache/store.h"
#include "python/src/support.h"
#include "src/base/mutex.h"

namespace embercache::python {

// A store written in Python, as SGLang's EmbeddingStore defines them: it knows hashes, takes
// payloads without an envelope, and answers one bool an item. For the caches above it looks like
// any other store: on a put the envelope is taken off, on a get one is made for the bytes that
// came, which therefore are not checked. Thread-safe; takes the GIL for each call.
class PythonStore final : public EmbeddingStore {
 public:
  explicit PythonStore(const nb::object& store);

  // What a Python store needs to know of a key beyond its text. Has to be told before a call that
  // uses the key; kept for the last 65536 keys at least. `tokens` is 0 where it is not known.
  void Remember(const EmbeddingKey& key, std::string_view hash, const EmbeddingSpec& spec,
                uint64_t tokens);

  std::string_view name() const override { return name_; }
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
  Status RegisterBuffer(const BufferRegion& region) override;
  StoreHealth Health() override { return {StoreState::kUp, "a store written in Python"}; }
  Status Close(TimePoint deadline) override;

 private:
  struct Name {
    EmbeddingKey key;
    std::string hash;
    EmbeddingSpec spec;
    uint64_t tokens = 0;
  };
  using Names = std::unordered_map<std::string, Name>;
  struct Batch;

  // False where it was forgotten, or never told.
  bool Find(std::string_view key, Name* name) const;
  // Calls the method with (hashes, pointers, sizes), and fills batch.found.
  Status Call(const char* method, Batch* batch) const;

  const std::shared_ptr<const void> store_;
  const std::string name_;
  mutable Mutex mutex_;
  Names recent_ GUARDED_BY(mutex_);
  Names older_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace embercache::python
