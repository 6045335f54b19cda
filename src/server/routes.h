#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "src/base/executor.h"
#include "src/base/metrics.h"
#include "src/server/encode_service.h"
#include "src/server/http_server.h"

namespace embercache {

// What the routes answer from. Empty functions answer 503: the server is starting.
struct RouteTargets {
  std::function<void(std::shared_ptr<HttpExchange>)> encode;
  std::function<HttpResponse()> ready;
  std::function<HttpResponse()> stats;
  std::function<HttpResponse()> metrics;
};

// Sends each request where it belongs. Thread-safe.
class Routes final : public HttpHandler {
 public:
  // Metrics and statistics are made on `background`; both outlive the routes. `local_only`: refuse
  // what comes from foreign pages.
  Routes(Metrics* metrics, Executor* background, bool local_only)
      : metrics_(metrics), background_(background), local_only_(local_only) {}

  // Once, when everything is loaded. Until then all but /health answers 503.
  void Open(RouteTargets targets);

  std::optional<HttpResponse> Admit(const HttpRequest& head) override;
  void Handle(std::shared_ptr<HttpExchange> exchange) override;
  void OnAnswer(const HttpRequest& head, int status) override;

 private:
  Metrics* const metrics_;
  Executor* const background_;
  const bool local_only_;
  RouteTargets targets_;
  std::atomic<bool> open_{false};
};

}  // namespace embercache
