#include "embercache/controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "src/base/log.h"
#include "src/base/units.h"
#include "src/cache/controller_impl.h"
#include "src/cache/prefetch.h"
#include "src/store/raw_format.h"

namespace embercache {
namespace {

// 80 % of the host cache for vision, 20 % for audio, where there is both.
constexpr uint64_t kVisionShare = 80;
// Two cores saturate the memory of most machines.
constexpr size_t kCopyThreads = 2;
// The arena is cut finer than pools: what lies in it is contiguous and short-lived.
constexpr uint64_t kArenaPageBytes = uint64_t{64} << 10;

}  // namespace

Status EmbeddingCacheController::Impl::Init(ControllerOptions new_options, ControllerParts parts) {
  options = std::move(new_options);
  if (options.max_eviction_batch == 0) {
    return Status::Invalid("max_eviction_batch is 0; give at least 1, or switch eviction off");
  }
  if (options.get_workers < 2 || options.put_workers < 2) {
    return Status::Invalid(fmt::format("{} get workers and {} put workers; give at least 2 of each",
                                       options.get_workers, options.put_workers));
  }
  clock = parts.clock != nullptr ? parts.clock : &SteadyClock();
  metrics = parts.metrics ? parts.metrics : std::make_shared<Metrics>();
  timer = parts.timer ? parts.timer : std::make_shared<ThreadTimer>();
  HostCacheOptions cache_options;
  cache_options.enable_eviction = options.enable_eviction;
  cache_options.max_eviction_batch = options.max_eviction_batch;
  cache_options.eviction =
      options.cost_aware_eviction ? EvictionKind::kSampledCost : EvictionKind::kLru;
  cache_options.seed = options.seed;
  cache_options.clock = clock;
  cache_options.on_evicted = [metrics = metrics](const std::string& pool, uint64_t entries) {
    metrics->evictions.Add({{"pool", pool}}).Increment(static_cast<double>(entries));
  };
  cache_options.on_uncached = [metrics = metrics](const char* reason) {
    metrics->uncached.Add({{"reason", reason}}).Increment();
  };
  cache = HostCache::Create(std::move(cache_options));
  copies = parts.copy_executor;
  if (!copies) copies = own_copy_threads = std::make_shared<ThreadPool>("ec-copy", kCopyThreads);
  if (!fetches()) {
    options.max_pool_bytes = 0;
    parts.store = nullptr;
  }
  if (parts.store) {
    GlobalCacheOptions global_options;
    global_options.get.workers = options.get_workers;
    global_options.get.max_queued_bytes = options.max_get_queue_bytes;
    global_options.get.seed = options.seed;
    global_options.put.workers = options.put_workers;
    global_options.put.max_queued_bytes = options.max_put_queue_bytes;
    global_options.put.seed = options.seed + 1;
    global_options.publish_confirm = options.publish_confirm;
    global_options.publish_nonfinite = options.publish_nonfinite;
    global_options.seed = options.seed;
    std::shared_ptr<Executor> get = parts.get_executor;
    std::shared_ptr<Executor> put = parts.put_executor;
    if (!get) get = own_get_threads = std::make_shared<ThreadPool>("ec-get", options.get_workers);
    if (!put) put = own_put_threads = std::make_shared<ThreadPool>("ec-put", options.put_workers);
    global = GlobalCache::Create(parts.store, global_options, get, put, timer, clock, metrics);
  }
  return InitPools();
}

Status EmbeddingCacheController::Impl::Register(const std::shared_ptr<PagePool>& pool) {
  return global ? global->RegisterBuffer(pool->Region()) : Status::Ok();
}

Status EmbeddingCacheController::Impl::AddPool(const char* kind, bool audio, uint64_t row_bytes,
                                               uint64_t size_bytes) {
  const std::string name = fmt::format("{}/{}", kind, row_bytes);
  pools.push_back({audio, row_bytes, HostCache::kNoPool});
  if (size_bytes < PageBytesFor(row_bytes) + kBlockBytes) {
    LOG_WARNING("pool {}: {} is too small for one page of {}; such items stay uncached", name,
                FormatBytes(size_bytes), FormatBytes(PageBytesFor(row_bytes)));
    return Status::Ok();
  }
  PagePoolOptions pool_options;
  pool_options.name = name;
  pool_options.row_bytes = row_bytes;
  pool_options.size_bytes = size_bytes;
  pool_options.prefault = options.prefault;
  if (options.progress) {
    pool_options.progress = [progress = options.progress, name](uint64_t done, uint64_t total) {
      progress(name, done, total);
    };
  }
  EMBERCACHE_ASSIGN_OR_RETURN(std::shared_ptr<PagePool> pool,
                              PagePool::Create(std::move(pool_options)));
  EMBERCACHE_RETURN_IF_ERROR(Register(pool));
  LOG_INFO("pool {}: {} pages of {} on {}", name, pool->num_pages(),
           FormatBytes(pool->page_bytes()), pool->page_kind());
  pools.back().index = cache->AddPool(std::move(pool));
  return Status::Ok();
}

Status EmbeddingCacheController::Impl::InitPools() {
  std::vector<uint64_t> rows[2];  // vision, audio
  for (const PoolOptions& pool : options.pools) {
    if (pool.row_bytes == 0) {
      return Status::Invalid(
          fmt::format("a pool for {} rows of 0 bytes", ModalityName(pool.modality)));
    }
    std::vector<uint64_t>& kind = rows[pool.modality == Modality::kAudio ? 1 : 0];
    if (std::find(kind.begin(), kind.end(), pool.row_bytes) == kind.end()) {
      kind.push_back(pool.row_bytes);
    }
  }
  if (options.max_pool_bytes > 0) {
    const bool both = !rows[0].empty() && !rows[1].empty();
    for (size_t audio = 0; audio < 2; ++audio) {
      const uint64_t percent = !both ? 100 : audio == 0 ? kVisionShare : 100 - kVisionShare;
      for (uint64_t row_bytes : rows[audio]) {
        const uint64_t share = options.max_pool_bytes / 100 * percent / rows[audio].size();
        EMBERCACHE_RETURN_IF_ERROR(
            AddPool(audio == 1 ? "audio" : "vision", audio == 1, row_bytes, share));
      }
    }
  }
  if (options.max_uncached_bytes > 0) {
    PagePoolOptions arena_options;
    arena_options.name = "uncached";
    arena_options.size_bytes = options.max_uncached_bytes;
    arena_options.page_bytes = kArenaPageBytes;
    arena_options.prefault = false;
    EMBERCACHE_ASSIGN_OR_RETURN(arena, PagePool::Create(std::move(arena_options)));
    EMBERCACHE_RETURN_IF_ERROR(Register(arena));
    cache->SetArena(arena);
  }
  return Status::Ok();
}

uint32_t EmbeddingCacheController::Impl::FindPool(const EmbeddingSpec& spec) const {
  const bool audio = spec.modality == Modality::kAudio;
  for (const Pool& pool : pools) {
    if (pool.audio == audio && pool.row_bytes == spec.row_bytes()) return pool.index;
  }
  return HostCache::kNoPool;
}

const PagePool* EmbeddingCacheController::Impl::MemoryFor(uint32_t pool) const {
  return pool == HostCache::kNoPool ? arena.get() : cache->pool(pool).get();
}

void LogCacheCheck(size_t total, uint64_t local, uint64_t global, uint64_t misses) {
  LOG_INFO(
      "=== Multi-Level Cache Check === Total: {} | Local Hits: {} | Global Hits: {} | Misses (GPU "
      "Work): {}",
      total, local, global, misses);
}

bool EmbeddingCacheController::Impl::IsClosed() const {
  MutexLock lock(mutex);
  return closed;
}

Result<std::unique_ptr<EmbeddingCacheController>> EmbeddingCacheController::Create(
    ControllerOptions options, ControllerParts parts) {
  if (parts.store != nullptr && IsRaw(*parts.store)) {
    return Status::Invalid(
        "the store is in raw format, whose keys are hashes; embercache.sglang can use it");
  }
  auto impl = std::make_shared<Impl>();
  EMBERCACHE_RETURN_IF_ERROR(impl->Init(std::move(options), std::move(parts)));
  return std::unique_ptr<EmbeddingCacheController>(new EmbeddingCacheController(std::move(impl)));
}

EmbeddingCacheController::EmbeddingCacheController(std::shared_ptr<Impl> impl)
    : impl_(std::move(impl)) {}

EmbeddingCacheController::~EmbeddingCacheController() {
  {
    MutexLock lock(impl_->mutex);
    if (impl_->closed) return;
  }
  (void)Close(impl_->clock->Now() + std::chrono::seconds(1));
}

void EmbeddingCacheController::Lookup(const EmbeddingSpec& spec, std::span<const LookupItem> items,
                                      TimePoint deadline, TimePoint wait_deadline,
                                      LookupCallback callback) {
  if (!impl_->IsClosed()) {
    StartLookup(impl_, spec, items, deadline, wait_deadline, CheckLine::kLogged,
                std::move(callback));
    return;
  }
  for (size_t i = 0; i < items.size(); ++i) {
    callback(i, {.status = Status::Cancelled("the cache is closed")});
  }
}

void EmbeddingCacheController::Read(const EmbeddingKey& key, std::vector<EmbeddingSpec> specs,
                                    TimePoint deadline, std::function<void(Result<Pin>)> done) {
  if (Pin pin = impl_->cache->TryPin(key)) return done(std::move(pin));
  if (!impl_->global || impl_->IsClosed()) {
    return done(Status::NotFound("there is no such embedding here"));
  }
  impl_->global->Read(key, std::move(specs), impl_->arena, deadline, std::move(done));
}

InsertResult EmbeddingCacheController::InsertBatch(std::span<const EmbeddingKey> keys) {
  InsertResult result;
  if (!impl_->global || impl_->IsClosed()) return result;
  std::unordered_set<EmbeddingKey, EmbeddingKeyHash> seen;
  std::vector<Pin> pins;
  for (const EmbeddingKey& key : keys) {
    if (!seen.insert(key).second) continue;
    Pin pin = impl_->cache->TryPin(key, /*count_use=*/false);
    if (!pin) {
      ++result.skipped_count;
      continue;
    }
    ++(impl_->cache->MarkPublished(pin) ? result.new_count : result.local_hit_count);
    pins.push_back(std::move(pin));
  }
  const auto count = [this](const char* kind, uint64_t items) {
    impl_->metrics->insert.Add({{"kind", kind}}).Increment(static_cast<double>(items));
  };
  count("new", result.new_count);
  count("existing", result.local_hit_count);
  count("skipped", result.skipped_count);
  LOG_INFO(
      "Global Cache: Inserting {} embeddings into {} ({} new, {} existing for replication, {} "
      "skipped due to allocation failure)",
      pins.size(), impl_->global->store().name(), result.new_count, result.local_hit_count,
      result.skipped_count);
  if (!pins.empty()) {
    impl_->global->Publish(std::move(pins), impl_->clock->Now() + impl_->options.publish_timeout);
  }
  return result;
}

Pin EmbeddingCacheController::TryPin(const EmbeddingKey& key) {
  return impl_->cache->TryPin(key);
}

bool EmbeddingCacheController::HasLocalEmbedding(const EmbeddingKey& key) const {
  return impl_->cache->Contains(key);
}

void EmbeddingCacheController::BatchIsExist(std::span<const EmbeddingKey> keys, TimePoint deadline,
                                            std::function<void(std::vector<bool>)> done) {
  std::vector<bool> found(keys.size());
  std::vector<EmbeddingKey> asked;
  std::vector<size_t> indices;
  for (size_t i = 0; i < keys.size(); ++i) {
    found[i] = impl_->cache->Contains(keys[i]);
    if (found[i]) continue;
    asked.push_back(keys[i]);
    indices.push_back(i);
  }
  const size_t local = keys.size() - asked.size();
  std::function<void(std::vector<bool>)> finish =
      [local, total = keys.size(), found = std::move(found), indices = std::move(indices),
       done = std::move(done)](std::vector<bool> remote) mutable {
        size_t global = 0;
        for (size_t n = 0; n < remote.size(); ++n) {
          found[indices[n]] = remote[n];
          if (remote[n]) ++global;
        }
        LogCacheCheck(total, local, global, total - local - global);
        done(std::move(found));
      };
  if (!impl_->global || asked.empty()) {
    finish(std::vector<bool>(asked.size()));
  } else {
    impl_->global->Exist(std::move(asked), deadline, std::move(finish));
  }
}

void EmbeddingCacheController::Remove(const EmbeddingKey& key, TimePoint deadline,
                                      std::function<void(RemoveResult)> done) {
  const bool local = impl_->cache->Remove(key);
  if (impl_->global) {
    impl_->global->Remove(key, deadline, std::move(done));
  } else {
    done({.outcome = local ? RemoveOutcome::kRemoved : RemoveOutcome::kAbsent});
  }
}

ControllerStats EmbeddingCacheController::Stats() const {
  ControllerStats stats;
  const auto view = [&](const PagePool& pool, const HostCacheStats& cache) {
    const PagePoolStats pages = pool.Stats();
    stats.pools.push_back({.name = pool.name(),
                           .row_bytes = pool.row_bytes(),
                           .page_bytes = pool.page_bytes(),
                           .pages = pages.pages,
                           .free = pages.free,
                           .filling = pages.filling,
                           .ready = pages.ready,
                           .quarantined = pages.quarantined,
                           .entries = cache.ready,
                           .filling_entries = cache.filling,
                           .pinned_entries = cache.pinned,
                           .evicted = cache.evicted,
                           .allocation_failures = cache.allocation_failures,
                           .page_kind = pool.page_kind()});
  };
  for (uint32_t i = 0; i < impl_->cache->num_pools(); ++i) {
    view(*impl_->cache->pool(i), impl_->cache->Stats(i));
  }
  if (impl_->arena) view(*impl_->arena, {});
  if (!impl_->global) return stats;
  for (const TransferLaneStats& lane : {impl_->global->get_stats(), impl_->global->put_stats()}) {
    stats.lanes.push_back({.name = stats.lanes.empty() ? "get" : "put",
                           .queued = lane.queued,
                           .running = lane.running,
                           .queued_bytes = lane.queued_bytes,
                           .dropped = lane.dropped,
                           .breaker_open = lane.breaker_open});
  }
  stats.backend = std::string(impl_->global->store().name());
  stats.store = impl_->global->store().Health();
  return stats;
}

bool EmbeddingCacheController::has_store() const {
  return impl_->global != nullptr;
}
HostCache& EmbeddingCacheController::host_cache() {
  return *impl_->cache;
}

Status EmbeddingCacheController::Close(TimePoint deadline) {
  std::map<std::string, std::shared_ptr<PrefetchRequest>, std::less<>> requests;
  {
    MutexLock lock(impl_->mutex);
    impl_->closed = true;
    requests.swap(impl_->requests);
  }
  for (auto& [id, request] : requests) (void)request->Release();
  if (impl_->own_copy_threads) (void)impl_->own_copy_threads->Stop(deadline);
  if (!impl_->global) return Status::Ok();
  const Status closed = impl_->global->Close(deadline);
  for (const auto& threads : {impl_->own_get_threads, impl_->own_put_threads}) {
    if (threads) (void)threads->Stop(deadline);
  }
  return closed;
}

}  // namespace embercache
