#include "src/server/routes.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "src/server/cache_route.h"
#include "src/server/error_response.h"
#include "src/server/openapi.h"
#include "src/server/origin_check.h"
#include "src/server/status_page.h"

namespace embercache {
namespace {

enum class Route { kEncode, kCache, kHealth, kReady, kStats, kMetrics, kStatusPage, kOpenApi };

struct RouteEntry {
  Route route;
  std::string_view path;
  std::string_view methods;  // as the header Allow has them
  std::string_view label;    // of the metrics
};

constexpr std::string_view kRead = "GET, HEAD, OPTIONS";
constexpr std::array<RouteEntry, 8> kRoutes = {{
    {Route::kEncode, "/v1/encode", "POST, OPTIONS", "/v1/encode"},
    {Route::kCache, CacheRoute::kPrefix, "GET, HEAD, DELETE, OPTIONS", "/v1/cache"},
    {Route::kHealth, "/health", kRead, "/health"},
    {Route::kReady, "/ready", kRead, "/ready"},
    {Route::kStats, "/v1/stats", kRead, "/v1/stats"},
    {Route::kMetrics, "/metrics", kRead, "/metrics"},
    {Route::kStatusPage, "/", kRead, "/"},
    {Route::kOpenApi, "/openapi.json", kRead, "/openapi.json"},
}};

const RouteEntry* Find(std::string_view path) {
  for (const RouteEntry& entry : kRoutes) {
    const bool prefix = entry.route == Route::kCache;
    if (prefix ? path.starts_with(entry.path) : path == entry.path) return &entry;
  }
  return nullptr;
}

// What can be answered before models are loaded.
bool IsAlwaysServed(Route route) {
  return route == Route::kHealth || route == Route::kStatusPage || route == Route::kOpenApi;
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

HttpResponse Methods(std::string_view methods) {
  HttpResponse response;
  response.status = 204;
  response.headers.emplace_back("Allow", methods);
  return response;
}

// The page takes nothing from elsewhere, and nobody may frame it.
HttpResponse StatusPage() {
  HttpResponse response = Text(std::string(kStatusPage));
  response.content_type = "text/html; charset=utf-8";
  response.headers = {{"Content-Security-Policy",
                       "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                       "connect-src 'self'; img-src data:; frame-ancestors 'none'"},
                      {"Cache-Control", "no-cache"}};
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
  if (head.method == "OPTIONS" && head.path == "*")
    return Methods("GET, HEAD, POST, DELETE, OPTIONS");
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
  if (head.method == "OPTIONS") return Methods(entry->methods);
  if (!IsAlwaysServed(entry->route) && !open_.load(std::memory_order_acquire)) {
    return ErrorResponse(Status::Unavailable("the server is still loading"));
  }
  return std::nullopt;
}

void Routes::Handle(std::shared_ptr<HttpExchange> exchange) {
  const RouteEntry* const entry = Find(exchange->request().path);
  switch (entry->route) {
    case Route::kEncode:
      return targets_.encode(std::move(exchange));
    case Route::kCache:
      return targets_.cache(std::move(exchange));
    case Route::kStatusPage:
      return exchange->Respond(StatusPage());
    case Route::kOpenApi:
      return exchange->Respond(Text(std::string(kOpenApi)));
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
      .Add({{"route", std::string(entry == nullptr ? "other" : entry->label)},
            {"code", std::to_string(status)}})
      .Increment();
}

}  // namespace embercache
