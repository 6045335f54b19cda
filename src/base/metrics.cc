#include "src/base/metrics.h"

#include <string>

namespace embercache {
namespace {

prometheus::Family<prometheus::Counter>& Counters(prometheus::Registry& registry, const char* name,
                                                  const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

prometheus::Family<prometheus::Histogram>& Histograms(prometheus::Registry& registry,
                                                      const char* name, const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
}

}  // namespace

Metrics::Metrics()
    : registry(std::make_shared<prometheus::Registry>()),
      requests(Counters(*registry, "embercache_requests_total", "HTTP requests answered.")),
      items(Counters(*registry, "embercache_items_total",
                     "Items answered, by where they came from.")),
      item_errors(Counters(*registry, "embercache_item_errors_total", "Items that failed.")),
      insert(Counters(*registry, "embercache_insert_total",
                      "Embeddings offered for publication: new, existing or skipped.")),
      published(Counters(*registry, "embercache_published_total", "Outcomes of publications.")),
      store_operations(
          Counters(*registry, "embercache_store_operations_total", "Items of store calls.")),
      store_bytes(Counters(*registry, "embercache_store_bytes_total",
                           "Bytes moved from and to the store.")),
      store_seconds(Histograms(*registry, "embercache_store_seconds", "Duration of store calls.")),
      corruptions(Counters(*registry, "embercache_corruptions_total",
                           "Objects read from the store that were not what they should be.")),
      incompatible(Counters(*registry, "embercache_incompatible_total",
                            "Objects read from the store that another format version wrote.")),
      nonfinite(Counters(*registry, "embercache_nonfinite_total",
                         "Embeddings with NaN or Inf, which are not published.")),
      evictions(Counters(*registry, "embercache_evictions_total", "Entries evicted.")),
      uncached(Counters(*registry, "embercache_uncached_total",
                        "Items served without a place in the host cache.")),
      stage_seconds(
          Histograms(*registry, "embercache_stage_seconds", "Duration of an item's stages.")),
      encoder_saved_seconds(Counters(*registry, "embercache_encoder_saved_seconds_total",
                                     "Encoder time that hits saved, estimated.")
                                .Add({})),
      info(prometheus::BuildGauge()
               .Name("embercache_info")
               .Help("What runs; always 1.")
               .Register(*registry)) {}

const prometheus::Histogram::BucketBoundaries& Metrics::Buckets() {
  static const auto* const kBuckets = new prometheus::Histogram::BucketBoundaries{
      0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
      0.05,    0.1,    0.25,    0.5,    1,     2.5,    5,     10,   30};
  return *kBuckets;
}

void Metrics::ObserveStage(std::string_view stage, double seconds) {
  stage_seconds.Add({{"stage", std::string(stage)}}, Buckets()).Observe(seconds);
}

}  // namespace embercache
