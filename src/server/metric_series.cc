#include "src/server/metric_series.h"

namespace embercache {
namespace {

void MakeStoreSeries(Metrics& metrics, const std::string& backend) {
  for (const char* kind : {"new", "existing", "skipped"}) metrics.insert.Add({{"kind", kind}});
  for (const char* result : {"stored", "already_present", "accepted", "dropped", "failed"}) {
    metrics.published.Add({{"result", result}});
  }
  for (const char* op : {"exist", "stat", "get", "put", "remove"}) {
    for (const char* result : {"ok", "miss", "error", "timeout", "refused"}) {
      metrics.store_operations.Add({{"backend", backend}, {"op", op}, {"result", result}});
    }
    metrics.store_seconds.Add({{"backend", backend}, {"op", op}}, Metrics::Buckets());
  }
  for (const char* op : {"get", "put"}) {
    metrics.store_bytes.Add({{"backend", backend}, {"op", op}});
  }
  metrics.corruptions.Add({{"backend", backend}});
  metrics.incompatible.Add({{"backend", backend}});
  metrics.nonfinite.Add({});
}

}  // namespace

void MakeKnownSeries(Metrics& metrics, const ControllerStats& stats) {
  for (const char* source : {"computed", "local", "global", "joined"}) {
    metrics.items.Add({{"source", source}, {"modality", "image"}});
  }
  for (const StatusCode code :
       {StatusCode::kInvalid, StatusCode::kResourceExhausted, StatusCode::kUnavailable,
        StatusCode::kDeadlineExceeded, StatusCode::kCancelled, StatusCode::kUnimplemented,
        StatusCode::kInternal}) {
    metrics.item_errors.Add({{"code", std::string(StatusCodeName(code))}});
  }
  for (const char* stage : {"lookup", "fetch", "preprocess", "encode"}) {
    metrics.stage_seconds.Add({{"stage", stage}}, Metrics::Buckets());
  }
  for (const char* reason : {"no_pool", "too_large", "no_room", "arena_full"}) {
    metrics.uncached.Add({{"reason", reason}});
  }
  for (const PoolView& pool : stats.pools) metrics.evictions.Add({{"pool", pool.name}});
  if (!stats.backend.empty()) MakeStoreSeries(metrics, stats.backend);
}

}  // namespace embercache
