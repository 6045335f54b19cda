#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "embercache/controller.h"
#include "src/base/executor.h"
#include "src/base/log.h"
#include "src/base/metrics.h"
#include "src/server/encode_pipeline.h"
#include "src/server/http_server.h"
#include "src/server/limits.h"
#include "src/server/media_bytes.h"
#include "src/server/recent_errors.h"
#include "src/server/served_model.h"

namespace embercache {

// What the service stands on; all of it outlives the service.
struct EncodeServiceParts {
  EmbeddingCacheController* controller;
  EncodePipeline* pipeline;
  Executor* workers;  // for parsing, hashing and composing answers
  Timer* timer;
  Metrics* metrics;
  const LiveLimits* limits;
  RecentErrors* errors;
  MediaRoot media_root;
  std::vector<std::shared_ptr<const ServedModel>> models;
};

// POST /v1/encode: reads a request, looks its items up, has the missing ones computed, answers, and
// offers what is ready for publication. Thread-safe. Outlives its requests.
class EncodeService {
 public:
  explicit EncodeService(EncodeServiceParts parts) : parts_(std::move(parts)) {}

  // Answers the exchange later; never blocks.
  void Handle(std::shared_ptr<HttpExchange> exchange);

  // Items admitted and not answered.
  size_t admitted_items() const { return admitted_.load(); }

 private:
  friend class EncodeTask;

  // False when they would be more than `limit` with those that are admitted.
  bool Admit(size_t items, size_t limit);
  void Release(size_t items) { admitted_.fetch_sub(items); }
  Result<std::shared_ptr<const ServedModel>> FindModel(const std::string& name) const;

  // Remembers it; and one line in 10 s for each kind of failure that is not the caller's fault.
  void NoteFailure(const std::string& request_id, const Status& status);

  const EncodeServiceParts parts_;
  std::atomic<size_t> admitted_{0};
  std::array<LogLimiter, 11> trouble_;  // by StatusCode
};

}  // namespace embercache
