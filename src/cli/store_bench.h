#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "embercache/clock.h"
#include "embercache/status.h"
#include "embercache/store.h"

namespace embercache {

// One way of using a store: `threads` threads, each with calls of `batch` objects of `bytes`.
struct BenchLoad {
  uint64_t bytes = 0;
  uint32_t batch = 1;
  uint32_t threads = 1;

  uint64_t total_bytes() const { return bytes * batch * threads; }
  bool operator==(const BenchLoad&) const = default;
};

// The embeddings of a bench have rows of so many bytes; `bytes` of a load is a multiple of it.
inline constexpr uint64_t kBenchRowBytes = 4096;

struct BenchMeasure {
  // "copy" (memcpy), "put" and "get" (the store), "cache get" (the cache above it: get and
  // verification), "host hit" (a look-up in the host cache, which moves no bytes).
  std::string op;
  BenchLoad load;
  uint64_t calls = 0;
  double p50_ms = 0;
  std::optional<double> p99_ms;  // of 100 calls or more
  double gb_per_s = 0;           // of 10^9 bytes, all threads together; 0 for host hits
};

// Measures all five for `time` each, and for a few calls at least. What it puts it removes. Fails
// when the store does not keep or give back what was put.
Result<std::vector<BenchMeasure>> MeasureStore(const std::shared_ptr<EmbeddingStore>& store,
                                               const BenchLoad& load, Duration time);

// The value below which a part of `sorted` lies; 0 of none.
double Quantile(const std::vector<double>& sorted, double part);

// What the measures mean, in sentences for the one who runs the machine.
std::vector<std::string> ExplainBench(const std::vector<BenchMeasure>& measures,
                                      std::string_view backend);

}  // namespace embercache
