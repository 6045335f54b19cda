#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "embercache/controller.h"
#include "src/base/executor.h"
#include "src/base/metrics.h"
#include "src/base/mutex.h"
#include "src/cache/global_cache.h"
#include "src/cache/host_cache.h"

namespace embercache {

class PrefetchRequest;

// Shared by the controller's parts, and by operations that outlive a call.
struct EmbeddingCacheController::Impl : public std::enable_shared_from_this<Impl> {
  struct Pool {
    bool audio = false;
    uint64_t row_bytes = 0;
    uint32_t index = HostCache::kNoPool;  // kNoPool: too small to hold anything, off
  };

  Status Init(ControllerOptions new_options, ControllerParts parts);
  Status InitPools();
  Status AddPool(const char* kind, bool audio, uint64_t row_bytes, uint64_t size_bytes);
  Status Register(const std::shared_ptr<PagePool>& pool);
  uint32_t FindPool(const EmbeddingSpec& spec) const;
  // Where entries of a pool get their memory: without a pool the arena; null without that too.
  const PagePool* MemoryFor(uint32_t pool) const;
  bool IsClosed() const;
  // Whether this rank looks anything up: a lead, or any rank with all_rank_get.
  bool fetches() const {
    return !options.tp_group || options.all_rank_get || options.tp_group->rank() == 0;
  }
  std::shared_ptr<PrefetchRequest> FindRequest(std::string_view req_id) const;
  void Forget(const std::string& req_id, const PrefetchRequest* request);

  ControllerOptions options;
  const Clock* clock = nullptr;
  std::shared_ptr<Metrics> metrics;
  // Null where the caller brought its own.
  std::shared_ptr<ThreadPool> own_get_threads;
  std::shared_ptr<ThreadPool> own_put_threads;
  std::shared_ptr<ThreadPool> own_copy_threads;
  std::shared_ptr<Executor> copies;
  std::shared_ptr<Timer> timer;
  std::shared_ptr<HostCache> cache;
  std::shared_ptr<PagePool> arena;
  std::shared_ptr<GlobalCache> global;  // null without a store
  std::vector<Pool> pools;

  mutable Mutex mutex;
  bool closed GUARDED_BY(mutex) = false;
  std::map<std::string, std::shared_ptr<PrefetchRequest>, std::less<>> requests GUARDED_BY(mutex);
};

// Whether a look-up writes the "Multi-Level Cache Check" line.
enum class CheckLine : bool { kNone, kLogged };

// Writes it: of `total` items, where they are.
void LogCacheCheck(size_t total, uint64_t local, uint64_t global, uint64_t misses);

// Starts the lookup of controller.h.
void StartLookup(std::shared_ptr<EmbeddingCacheController::Impl> impl, const EmbeddingSpec& spec,
                 std::span<const LookupItem> items, TimePoint deadline, TimePoint wait_deadline,
                 CheckLine line, LookupCallback callback);

}  // namespace embercache
