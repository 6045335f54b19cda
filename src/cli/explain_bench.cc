#include <fmt/format.h>

#include <algorithm>

#include "src/base/units.h"
#include "src/cli/store_bench.h"

namespace embercache {
namespace {

const BenchMeasure* Find(const std::vector<BenchMeasure>& measures, std::string_view op,
                         const BenchLoad& load) {
  for (const BenchMeasure& measure : measures) {
    if (measure.op == op && measure.load == load) return &measure;
  }
  return nullptr;
}

// The largest objects, one at a time, on one thread: what a single request sees.
BenchLoad PlainLoad(const std::vector<BenchMeasure>& measures) {
  BenchLoad plain = measures.front().load;
  for (const BenchMeasure& measure : measures) {
    const BenchLoad& load = measure.load;
    plain.bytes = std::max(plain.bytes, load.bytes);
    plain.batch = std::min(plain.batch, load.batch);
    plain.threads = std::min(plain.threads, load.threads);
  }
  return plain;
}

// "1.0 MiB", or "8 objects of 1.0 MiB".
std::string ObjectsOf(const BenchLoad& load) {
  const std::string size = FormatBytes(load.bytes);
  return load.batch == 1 ? size : fmt::format("{} objects of {}", load.batch, size);
}

double Percent(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

std::string WorstCase(const BenchMeasure& measure) {
  if (measure.p99_ms)
    return fmt::format("in the worst of a hundred cases {:.2f} ms", *measure.p99_ms);
  return fmt::format("of which {} calls tell the middle alone: a longer --time tells the worst too",
                     measure.calls);
}

}  // namespace

std::vector<std::string> ExplainBench(const std::vector<BenchMeasure>& measures,
                                      std::string_view backend) {
  if (measures.empty()) return {};
  const BenchLoad load = PlainLoad(measures);
  const BenchMeasure* const copy = Find(measures, "copy", load);
  const BenchMeasure* const put = Find(measures, "put", load);
  const BenchMeasure* const get = Find(measures, "get", load);
  const BenchMeasure* const cache = Find(measures, "cache get", load);
  const BenchMeasure* const hit = Find(measures, "host hit", load);
  if (!copy || !put || !get || !cache || !hit) return {};
  const double items = load.batch;  // of a call, whose time is that of all of them
  std::vector<std::string> text;
  text.push_back(fmt::format(
      "A get of {} from {} takes {:.2f} ms, {}. On average that is {:.2f} GB/s, {:.0f} % of what "
      "copying the same bytes in memory reaches here ({:.2f} GB/s).",
      ObjectsOf(load), backend, get->p50_ms, WorstCase(*get), get->gb_per_s,
      Percent(get->gb_per_s, copy->gb_per_s), copy->gb_per_s));
  text.push_back(fmt::format(
      "The cache above it checks every byte and gives {} in {:.2f} ms ({:.2f} GB/s): an item whose "
      "encoder takes longer than {:.2f} ms is worth sharing.",
      load.batch == 1 ? "it" : "them", cache->p50_ms, cache->gb_per_s, cache->p50_ms / items));
  text.push_back(fmt::format(
      "Publishing one takes {:.2f} ms, and no request waits for that. An item that this node has "
      "in its own memory is found in {:.3f} ms.",
      put->p50_ms / items, hit->p50_ms / items));
  const BenchMeasure* slowest = nullptr;
  const BenchMeasure* fastest = get;
  for (const BenchMeasure& measure : measures) {
    const bool fetches = measure.op == "cache get" && measure.p99_ms;
    if (fetches && (!slowest || measure.p99_ms > slowest->p99_ms)) slowest = &measure;
    if (measure.op == "get" && measure.gb_per_s > fastest->gb_per_s) fastest = &measure;
  }
  if (fastest->gb_per_s > 1.1 * get->gb_per_s) {
    text.push_back(fmt::format("With {} at a time on {} threads the store gives {:.2f} GB/s.",
                               ObjectsOf(fastest->load), fastest->load.threads, fastest->gb_per_s));
  }
  constexpr double kDefaultLookupTimeoutMs = 500;
  if (slowest && slowest->p99_ms > kDefaultLookupTimeoutMs) {
    text.push_back(fmt::format(
        "Some look-ups of {} on {} threads take longer ({:.0f} ms) than a request waits for the "
        "store by default (--lookup-timeout-ms 500): under such load they would be misses.",
        ObjectsOf(slowest->load), slowest->load.threads, *slowest->p99_ms));
  }
  return text;
}

}  // namespace embercache
