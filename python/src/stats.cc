#include "python/src/cache.h"

#include "src/cache/host_cache.h"
#include "src/store/state_name.h"

namespace embercache::python {

nb::dict Cache::Stats() {
  const ControllerStats stats = Use().Stats();
  const HostCache& cache = Use().host_cache();
  nb::dict result;
  nb::list pools, lanes;
  for (size_t i = 0; i < stats.pools.size(); ++i) {
    const PoolView& pool = stats.pools[i];
    // The last one is the arena.
    const HostCacheStats bytes =
        i < cache.num_pools() ? cache.Stats(static_cast<uint32_t>(i)) : HostCacheStats();
    nb::dict view;
    view["name"] = pool.name;
    view["page_kind"] = pool.page_kind;
    const std::pair<const char*, uint64_t> numbers[] = {
        {"row_bytes", pool.row_bytes},
        {"page_bytes", pool.page_bytes},
        {"pages", pool.pages},
        {"free", pool.free},
        {"filling", pool.filling},
        {"ready", pool.ready},
        {"quarantined", pool.quarantined},
        {"entries", pool.entries},
        {"filling_entries", pool.filling_entries},
        {"pinned_entries", pool.pinned_entries},
        {"evicted", pool.evicted},
        {"evicted_bytes", bytes.evicted_bytes},
        {"eviction_rounds", bytes.eviction_rounds},
        {"allocated_bytes", bytes.allocated_bytes},
        {"allocation_failures", pool.allocation_failures}};
    for (const auto& [name, number] : numbers) view[name] = number;
    pools.append(view);
  }
  for (const LaneView& lane : stats.lanes) {
    nb::dict view;
    view["name"] = lane.name;
    view["queued"] = lane.queued;
    view["running"] = lane.running;
    view["queued_bytes"] = lane.queued_bytes;
    view["dropped"] = lane.dropped;
    view["breaker_open"] = lane.breaker_open;
    lanes.append(view);
  }
  result["pools"] = pools;
  result["lanes"] = lanes;
  result["requests"] = requests_.size();
  result["backend"] = stats.backend;
  result["store"] = stats.backend.empty() ? "" : StateName(stats.store.state);
  result["store_detail"] = stats.store.detail;
  return result;
}

nb::list Cache::Regions() {
  HostCache& cache = Use().host_cache();
  nb::list regions;
  for (uint32_t i = 0; i < cache.num_pools(); ++i) {
    const BufferRegion region = cache.pool(i)->Region();
    regions.append(
        nb::make_tuple(reinterpret_cast<uintptr_t>(region.memory.data()), region.memory.size()));
  }
  return regions;
}

}  // namespace embercache::python
