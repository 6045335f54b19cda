#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <chrono>
#include <memory>
#include <string_view>

namespace embercache {

// The process's metric families, by the names of docs/operations.md. Thread-safe. Label values come
// from fixed sets, never from callers' input. Gauges of pools and lanes are read at scrape time by
// the collectors of the cache, not kept here.
struct Metrics {
  Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  std::shared_ptr<prometheus::Registry> registry;

  prometheus::Family<prometheus::Counter>& requests;          // route, code
  prometheus::Family<prometheus::Counter>& items;             // source, modality
  prometheus::Family<prometheus::Counter>& item_errors;       // code
  prometheus::Family<prometheus::Counter>& insert;            // kind: new, existing, skipped
  prometheus::Family<prometheus::Counter>& published;         // result
  prometheus::Family<prometheus::Counter>& store_operations;  // backend, op, result
  prometheus::Family<prometheus::Counter>& store_bytes;       // backend, op
  prometheus::Family<prometheus::Histogram>& store_seconds;   // backend, op
  prometheus::Family<prometheus::Counter>& corruptions;       // backend
  prometheus::Family<prometheus::Counter>& incompatible;      // backend
  prometheus::Family<prometheus::Counter>& nonfinite;         // no label
  prometheus::Family<prometheus::Counter>& evictions;         // pool
  prometheus::Family<prometheus::Counter>& uncached;          // reason
  prometheus::Family<prometheus::Histogram>& stage_seconds;   // stage
  prometheus::Counter& encoder_saved_seconds;
  prometheus::Family<prometheus::Gauge>& info;  // version, model, namespace, epoch, envelope

  // Seconds, from 50 µs to 30 s.
  static const prometheus::Histogram::BucketBoundaries& Buckets();
  void ObserveStage(std::string_view stage, double seconds);
};

}  // namespace embercache
