#pragma once

#include <prometheus/collectable.h>

#include "embercache/controller.h"
#include "src/server/encode_pipeline.h"

namespace embercache {

// The gauges that are read when somebody asks: pools, pins, queues and breakers.
class CacheCollector final : public prometheus::Collectable {
 public:
  // Both outlive the collector.
  CacheCollector(const EmbeddingCacheController* controller, const EncodePipeline* pipeline)
      : controller_(controller), pipeline_(pipeline) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const EmbeddingCacheController* const controller_;
  const EncodePipeline* const pipeline_;
};

}  // namespace embercache
