#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "embercache/controller.h"
#include "src/base/executor.h"
#include "src/base/metrics.h"
#include "src/server/encode_pipeline.h"
#include "src/server/http_server.h"
#include "src/server/media_bytes.h"
#include "src/server/served_model.h"

namespace embercache {

struct EncodeServiceOptions {
  // Items admitted and not answered; a request beyond is answered 503 at once.
  size_t queue_items = 96;
  size_t max_items = 64;
  uint64_t max_media_bytes = uint64_t{64} << 20;
  Duration lookup_timeout = std::chrono::milliseconds(500);
  Duration request_timeout = std::chrono::seconds(30);
  MediaRoot media_root;
};

// What the service stands on; all of it outlives the service.
struct EncodeServiceParts {
  EmbeddingCacheController* controller;
  EncodePipeline* pipeline;
  Executor* workers;  // for parsing, hashing and composing answers
  Timer* timer;
  Metrics* metrics;
  std::vector<std::shared_ptr<const ServedModel>> models;
};

// POST /v1/encode: reads a request, looks its items up, has the missing ones computed, answers, and
// offers what is ready for publication. Thread-safe. Outlives its requests.
class EncodeService {
 public:
  EncodeService(EncodeServiceOptions options, EncodeServiceParts parts)
      : options_(std::move(options)), parts_(std::move(parts)) {}

  // Answers the exchange later; never blocks.
  void Handle(std::shared_ptr<HttpExchange> exchange);

  // Items admitted and not answered.
  size_t admitted_items() const { return admitted_.load(); }

 private:
  friend class EncodeTask;

  // False when the queue has no room for `items` more.
  bool Admit(size_t items);
  void Release(size_t items) { admitted_.fetch_sub(items); }
  Result<std::shared_ptr<const ServedModel>> FindModel(const std::string& name) const;

  const EncodeServiceOptions options_;
  const EncodeServiceParts parts_;
  std::atomic<size_t> admitted_{0};
};

}  // namespace embercache
