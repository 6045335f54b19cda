#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "embercache/embedding.h"
#include "embercache/encoder.h"

namespace embercache {

// A model that the server serves, under its name in requests.
struct ServedModel {
  std::string name;
  std::unique_ptr<const Encoder> encoder;
  EmbeddingSpec spec;
  // Preprocessing and encoder time of a recent item, for the estimate of what hits save; seconds.
  mutable std::atomic<double> recent_cost_seconds{0};
};

}  // namespace embercache
