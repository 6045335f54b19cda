#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "embercache/store.h"
#include "python/src/support.h"
#include "src/base/mutex.h"
#include "src/store/raw_format.h"

namespace embercache::python {

// A store written in Python, as SGLang's EmbeddingStore defines them: it knows hashes, which are
// the keys here, takes payloads without an envelope, and answers one bool an item. Thread-safe;
// takes the GIL for each call.
class PythonStore final : public EmbeddingStore, public RawFormat {
 public:
  explicit PythonStore(const nb::object& store);

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
  // The store makes a key of it itself.
  std::string GetKey(std::string_view hash) const override { return std::string(hash); }
  StoreHealth Health() override { return {StoreState::kUp, "a store written in Python"}; }
  Status Close(TimePoint deadline) override;

 private:
  // Calls the method with the hashes, and with pointers and sizes where there are buffers. One
  // answer an item.
  Result<std::vector<bool>> Call(const char* method, std::span<const std::string_view> hashes,
                                 std::span<const std::vector<ConstBuffer>> buffers) const;

  const std::shared_ptr<const void> store_;
  const std::string name_;
  mutable Mutex mutex_;
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace embercache::python
