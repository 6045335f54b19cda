#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "embercache/controller.h"
#include "python/src/copy_threads.h"
#include "python/src/embedding_view.h"
#include "python/src/key_memo.h"
#include "python/src/python_store.h"
#include "python/src/requests.h"
#include "python/src/support.h"
#include "src/cache/raw_store.h"

namespace embercache::python {

// A built-in backend that is open; several caches may share it.
struct NativeStore {
  std::string backend;
  std::shared_ptr<EmbeddingStore> store;
  ForkGuard fork;
};

// What a cache is made from; see the docstring of Cache.
struct CacheSettings {
  Digest256 namespace_digest;
  std::map<std::string, uint32_t> hidden;
  std::string dtype;
  uint64_t max_pool_bytes = 0;
  uint64_t max_uncached_bytes = 0;
  bool enable_eviction = true;
  uint32_t max_eviction_batch = 100;
  double lookup_timeout_s = 0.5;
  double publish_timeout_s = 30;
  double publish_confirm_s = 0;
  double request_ttl_s = 600;
  bool prefault = true;
  std::shared_ptr<TpGroup> tp_group;
};

// A controller with the specs of one model, as Python sees it. Drops the GIL around all that may
// block. Closed by Close, by its destructor, or when the interpreter ends.
class Cache {
 public:
  Cache(const CacheSettings& settings, nb::object store);
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  EmbeddingKey Key(nb::str hash) { return memo_.KeyOf(hash); }
  EmbeddingKey MediaKey(nb::bytes media, const std::string& modality,
                        const std::string& options) const;

  nb::list GetMany(nb::sequence keys, const std::string& modality,
                   std::optional<std::vector<int64_t>> expected_tokens,
                   std::optional<double> timeout_s);
  std::unique_ptr<EmbeddingView> GetOrCompute(nb::object key, nb::callable compute,
                                              const std::string& modality, int64_t expected_tokens,
                                              double wait_s, bool publish,
                                              const std::string& metadata);
  std::unique_ptr<EmbeddingView> Pin(nb::object key);
  bool HasLocal(nb::object key);
  std::vector<bool> Exists(nb::sequence keys, std::optional<double> timeout_s);
  // The answer of Exists where no store has to be asked for it.
  std::optional<std::vector<bool>> ExistsHere(nb::sequence keys);
  nb::tuple Publish(nb::sequence keys);
  std::string Remove(nb::object key, double timeout_s);

  void Prefetch(const std::string& req_id, nb::sequence keys,
                const std::vector<int64_t>& expected_tokens, const std::string& modality);
  std::string PrefetchState(const std::string& req_id, double wait_s);
  std::vector<std::string> PrefetchOutcomes(const std::string& req_id);
  bool ReleaseRequest(const std::string& req_id);
  // The same for callers that read embeddings by their names, and never release a request.
  void PrefetchUntilUsed(const std::string& req_id, nb::sequence keys,
                         const std::vector<int64_t>& expected_tokens, const std::string& modality);
  bool PrefetchEnded(const std::string& req_id, double wait_s);
  void Used(nb::sequence keys);

  CopyHandle StoreToPool(nb::sequence keys, const std::vector<InputArray>& arrays,
                         const std::string& modality, const std::string& metadata);
  // The same for rows that are known to be contiguous and of the cache's dtype.
  CopyHandle StoreRows(nb::sequence keys, const std::vector<uintptr_t>& addresses,
                       const std::vector<uint64_t>& tokens, const std::vector<nb::object>& owners,
                       const std::string& modality);
  CopyHandle LoadRows(nb::object key, uintptr_t address, uint64_t rows, uint64_t hidden,
                      nb::object owner);
  CopyHandle Load(nb::object key, nb::ndarray<nb::c_contig, nb::device::cpu> destination,
                  uint64_t row_offset);
  static std::vector<std::string> WaitCopies(const CopyHandle& handle, double timeout_s);

  nb::dict Stats();
  nb::list Regions();
  void Close(double timeout_s);
  // At the interpreter's end; the GIL is not held.
  void CloseBy(TimePoint deadline);
  bool closed() const { return closed_; }
  const Digest256& namespace_digest() const { return settings_.namespace_digest; }

 private:
  EmbeddingCacheController& Use() const;
  EmbeddingSpec SpecOf(const std::string& modality) const;
  // A Key, or a caller's hash as a str.
  EmbeddingKey ToKey(nb::handle key);
  // For calls to the store: one in raw format has to know the hash, and for a get the rest.
  EmbeddingKey ToStoreKey(nb::handle key, const EmbeddingSpec& spec, int64_t tokens);
  std::vector<EmbeddingKey> ToStoreKeys(nb::sequence keys, const EmbeddingSpec& spec,
                                        const std::vector<int64_t>* tokens);
  void BeginPrefetch(const std::string& name, const EmbeddingSpec& spec,
                     std::span<const EmbeddingKey> keys, std::span<const int64_t> expected_tokens);
  CopyHandle Store(const EmbeddingSpec& spec, std::vector<PoolItem> items);
  std::unique_ptr<EmbeddingView> Compute(Claim claim, const nb::callable& compute,
                                         const EmbeddingSpec& spec, const std::string& metadata);

  const ForkGuard fork_;
  CacheSettings settings_;
  DType dtype_ = DType::kF32;
  KeyMemo memo_;
  Requests requests_;
  std::shared_ptr<RawStore> raw_;  // null where the store knows envelopes
  std::shared_ptr<CopyThreads> copies_;
  std::shared_ptr<EmbeddingCacheController> controller_;
  std::atomic<bool> closed_{false};
};

// Closes every open cache, all of them by the deadline together. The GIL is not held.
void CloseAllCaches(TimePoint deadline);

void BindCache(nb::module_& module);
void BindStores(nb::module_& module);

}  // namespace embercache::python
