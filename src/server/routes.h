#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "src/base/executor.h"
#include "src/base/metrics.h"
#include "src/server/encode_service.h"
#include "src/server/http_server.h"
#include "src/server/limits.h"

namespace embercache {

// What the routes answer from. Empty functions answer 503: the server is starting.
struct RouteTargets {
  std::function<void(std::shared_ptr<HttpExchange>)> encode;
  std::function<void(std::shared_ptr<HttpExchange>)> cache;
  std::function<HttpResponse()> ready;
  std::function<HttpResponse()> stats;
  std::function<HttpResponse()> metrics;
};

// Sends each request where it belongs. Thread-safe.
class Routes final : public HttpHandler {
 public:
  // Metrics and statistics are made on `background`. `local_only`: refuse what comes from foreign
  // pages. What is pointed to outlives the routes.
  Routes(Metrics* metrics, Executor* background, const LiveLimits* limits, bool local_only)
      : metrics_(metrics), background_(background), limits_(limits), local_only_(local_only) {}

  // Once, when everything is loaded. Until then all that needs the targets answers 503.
  void Open(RouteTargets targets);

  std::optional<HttpResponse> Admit(const HttpRequest& head) override;
  void Handle(std::shared_ptr<HttpExchange> exchange) override;
  void OnAnswer(const HttpRequest& head, int status) override;
  uint64_t MaxBodyBytes() const override { return limits_->Get().max_body_bytes; }

 private:
  Metrics* const metrics_;
  Executor* const background_;
  const LiveLimits* const limits_;
  const bool local_only_;
  RouteTargets targets_;
  std::atomic<bool> open_{false};
};

}  // namespace embercache
