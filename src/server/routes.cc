#include "src/server/routes.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "src/server/error_response.h"
#include "src/server/origin_check.h"

namespace embercache {
namespace {

enum class Route { kEncode, kHealth, kReady, kStats, kMetrics };

struct RouteEntry {
  Route route;
  std::string_view path;
  std::string_view methods;  // as the header Allow has them
};

constexpr std::array<RouteEntry, 5> kRoutes = {{
    {Route::kEncode, "/v1/encode", "POST, OPTIONS"},
    {Route::kHealth, "/health", "GET, HEAD, OPTIONS"},
    {Route::kReady, "/ready", "GET, HEAD, OPTIONS"},
    {Route::kStats, "/v1/stats", "GET, HEAD, OPTIONS"},
    {Route::kMetrics, "/metrics", "GET, HEAD, OPTIONS"},
}};

const RouteEntry* Find(std::string_view path) {
  for (const RouteEntry& entry : kRoutes) {
    if (entry.path == path) return &entry;
  }
  return nullptr;
}

bool Allows(const RouteEntry& entry, std::string_view method) {
  std::string_view methods = entry.methods;
  while (!methods.empty()) {
    const size_t comma = std::min(methods.find(", "), methods.size());
    if (methods.substr(0, comma) == method) return true;
    methods.remove_prefix(std::min(comma + 2, methods.size()));
  }
  return false;
}

HttpResponse Text(std::string text) {
  HttpResponse response;
  response.text = std::move(text);
  return response;
}

}  // namespace

void Routes::Open(RouteTargets targets) {
  targets_ = std::move(targets);
  open_.store(true, std::memory_order_release);
}

std::optional<HttpResponse> Routes::Admit(const HttpRequest& head) {
  const std::string_view invalid = StatusCodeName(StatusCode::kInvalid);
  if (local_only_) {
    const std::string reason = ForeignHeader(head.Header("Host"), head.Header("Origin"));
    if (!reason.empty()) return ErrorResponse(403, invalid, reason);
  }
  const RouteEntry* const entry = Find(head.path);
  if (entry == nullptr) {
    return ErrorResponse(Status::NotFound(fmt::format("there is no route {}", head.path)));
  }
  if (!Allows(*entry, head.method)) {
    HttpResponse response = ErrorResponse(
        405, invalid,
        fmt::format("{} does not take {}; it takes {}", head.path, head.method, entry->methods));
    response.headers.emplace_back("Allow", entry->methods);
    return response;
  }
  const std::string_view encoding = head.Header("Content-Encoding");
  if (!encoding.empty() && encoding != "identity") {
    return ErrorResponse(Status::Unimplemented(
        fmt::format("header Content-Encoding is '{}'; only identity is served", encoding)));
  }
  if (head.method == "OPTIONS") {
    HttpResponse response;
    response.status = 204;
    response.headers.emplace_back("Allow", entry->methods);
    return response;
  }
  if (entry->route != Route::kHealth && !open_.load(std::memory_order_acquire)) {
    return ErrorResponse(Status::Unavailable("the server is still loading"));
  }
  return std::nullopt;
}

void Routes::Handle(std::shared_ptr<HttpExchange> exchange) {
  const RouteEntry* const entry = Find(exchange->request().path);
  switch (entry->route) {
    case Route::kEncode:
      return targets_.encode(std::move(exchange));
    case Route::kHealth:
      return exchange->Respond(Text("{\"status\":\"ok\"}\n"));
    case Route::kReady:
      return exchange->Respond(targets_.ready());
    case Route::kStats:
      return background_->Post([this, exchange] { exchange->Respond(targets_.stats()); });
    case Route::kMetrics:
      return background_->Post([this, exchange] { exchange->Respond(targets_.metrics()); });
  }
}

void Routes::OnAnswer(const HttpRequest& head, int status) {
  const RouteEntry* const entry = Find(head.path);
  metrics_->requests
      .Add({{"route", std::string(entry == nullptr ? "other" : entry->path)},
            {"code", std::to_string(status)}})
      .Increment();
}

}  // namespace embercache
