#include "src/server/cache_route.h"

#include <fmt/format.h>

#include "src/server/answer.h"
#include "src/server/error_response.h"
#include "src/server/request_headers.h"

namespace embercache {

struct CacheRoute::Request {
  std::shared_ptr<HttpExchange> exchange;
  std::string id;
  TimePoint deadline;
  EmbeddingKey key;

  // Everything but `exchange` from its head.
  Status Read(Duration limit) {
    const HttpRequest& head = exchange->request();
    EMBERCACHE_RETURN_IF_ERROR(ReadRequestId(head, &id));
    EMBERCACHE_ASSIGN_OR_RETURN(deadline, DeadlineOf(head, limit));
    const std::string text = head.path.substr(kPrefix.size());
    const auto digest = Digest256::FromHex(text);
    if (!digest) {
      return Status::Invalid(fmt::format("key '{}' has to be 64 hexadecimal digits", text));
    }
    key = {*digest};
    return Status::Ok();
  }

  void Respond(HttpResponse response) {
    response.headers.emplace_back("X-Request-Id", id);
    response.deadline = SendDeadline(deadline);
    exchange->Respond(std::move(response));
  }

  void RespondError(const Status& status) {
    Respond(ErrorResponse(Status(status.code(),
                                 fmt::format("key {}: {}", key.digest.ToHex(), status.message()),
                                 status.retryable())));
  }

  void RespondEmbedding(Pin pin) {
    Answer answer;
    answer.request_id = id;
    answer.total = SteadyClock().Now() - exchange->request().received;
    AnswerItem& item = answer.items.emplace_back();
    item.key = key;
    item.has_key = true;
    item.source = pin.cached() ? "local" : "global";
    (pin.cached() ? item.lookup : item.fetch) = answer.total;
    item.pin = std::move(pin);
    const bool json = PrefersJson(exchange->request().Header("Accept"));
    Respond(ComposeAnswer(std::move(answer), json));
  }
};

CacheRoute::CacheRoute(EmbeddingCacheController* controller, const LiveLimits* limits,
                       const std::vector<std::shared_ptr<const ServedModel>>& models)
    : controller_(controller), limits_(limits) {
  for (const auto& model : models) specs_.push_back(model->spec);
}

void CacheRoute::Handle(std::shared_ptr<HttpExchange> exchange) const {
  auto request = std::make_shared<Request>();
  request->exchange = std::move(exchange);
  const Status read = request->Read(limits_->Get().request_timeout);
  if (!read.ok()) return request->Respond(ErrorResponse(read));
  const bool remove = request->exchange->request().method == "DELETE";
  controller_->Read(request->key, specs_, request->deadline,
                    [this, request, remove](Result<Pin> pin) {
                      if (!pin.ok()) return request->RespondError(pin.status());
                      if (remove) return Remove(request);
                      request->RespondEmbedding(*std::move(pin));
                    });
}

// Only what was read as one of ours before: a store may have other people's objects.
void CacheRoute::Remove(std::shared_ptr<Request> request) const {
  controller_->Remove(request->key, request->deadline, [request](const RemoveResult& result) {
    if (result.outcome == RemoveOutcome::kFailed) return request->RespondError(result.status);
    HttpResponse response;
    response.status = 204;
    request->Respond(std::move(response));
  });
}

}  // namespace embercache
