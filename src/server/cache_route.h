#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "embercache/controller.h"
#include "src/server/http_server.h"
#include "src/server/limits.h"
#include "src/server/served_model.h"

namespace embercache {

// GET, HEAD and DELETE /v1/cache/{key}: one embedding by its key, of any model that is served here,
// from the host cache, else from the store. Thread-safe. Outlives its requests.
class CacheRoute {
 public:
  static constexpr std::string_view kPrefix = "/v1/cache/";

  // What is pointed to outlives the route.
  CacheRoute(EmbeddingCacheController* controller, const LiveLimits* limits,
             const std::vector<std::shared_ptr<const ServedModel>>& models);

  // Answers the exchange later; never blocks.
  void Handle(std::shared_ptr<HttpExchange> exchange) const;

 private:
  struct Request;

  void Remove(std::shared_ptr<Request> request) const;

  EmbeddingCacheController* const controller_;
  const LiveLimits* const limits_;
  std::vector<EmbeddingSpec> specs_;
};

}  // namespace embercache
