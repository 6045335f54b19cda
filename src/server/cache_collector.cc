#include "src/server/cache_collector.h"

#include <initializer_list>
#include <string>
#include <utility>

namespace embercache {
namespace {

using Labels = std::initializer_list<std::pair<const char*, std::string>>;

prometheus::MetricFamily Gauges(const char* name, const char* help) {
  prometheus::MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = prometheus::MetricType::Gauge;
  return family;
}

void Add(prometheus::MetricFamily& family, const Labels& labels, double value) {
  prometheus::ClientMetric& metric = family.metric.emplace_back();
  for (const auto& [name, text] : labels) metric.label.push_back({name, text});
  metric.gauge.value = value;
}

}  // namespace

std::vector<prometheus::MetricFamily> CacheCollector::Collect() const {
  const ControllerStats stats = controller_->Stats();
  auto pages = Gauges("embercache_pool_pages", "Pages of the host cache, by what they hold.");
  auto pinned = Gauges("embercache_pinned_entries", "Entries that somebody reads now.");
  auto depth = Gauges("embercache_queue_depth", "Items that wait to be worked on.");
  auto breaker = Gauges("embercache_breaker_open", "1 while a lane answers without the store.");
  for (const PoolView& pool : stats.pools) {
    Add(pages, {{"pool", pool.name}, {"state", "free"}}, static_cast<double>(pool.free));
    Add(pages, {{"pool", pool.name}, {"state", "filling"}}, static_cast<double>(pool.filling));
    Add(pages, {{"pool", pool.name}, {"state", "ready"}}, static_cast<double>(pool.ready));
    Add(pages, {{"pool", pool.name}, {"state", "quarantined"}},
        static_cast<double>(pool.quarantined));
    Add(pinned, {{"pool", pool.name}}, static_cast<double>(pool.pinned_entries));
  }
  Add(depth, {{"queue", "decode"}}, static_cast<double>(pipeline_->decode_queue_depth()));
  Add(depth, {{"queue", "encode"}}, static_cast<double>(pipeline_->encode_queue_depth()));
  for (const LaneView& lane : stats.lanes) {
    Add(depth, {{"queue", lane.name}}, static_cast<double>(lane.queued));
    Add(breaker, {{"backend", stats.backend}, {"lane", lane.name}}, lane.breaker_open ? 1 : 0);
  }
  return {std::move(pages), std::move(pinned), std::move(depth), std::move(breaker)};
}

}  // namespace embercache
