#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "embercache/embedding.h"
#include "embercache/encoder.h"

namespace embercache {

// A model that the server serves, under its name in requests.
class ServedModel {
 public:
  std::string name;
  std::unique_ptr<const Encoder> encoder;
  EmbeddingSpec spec;
  // Preprocessing and encoder time of recent items, seconds; 0 while there were none.
  double recent_cost_seconds() const { return recent_cost_.load(std::memory_order_relaxed); }
  // Takes one more into the mean. Thread-safe; one of two concurrent calls may be lost.
  void AddCost(double seconds) const {
    const double mean = recent_cost_seconds();
    recent_cost_.store(mean == 0 ? seconds : mean + (seconds - mean) / 8,
                       std::memory_order_relaxed);
  }

 private:
  mutable std::atomic<double> recent_cost_{0};
};

}  // namespace embercache
