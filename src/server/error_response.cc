#include "src/server/error_response.h"

#include <nlohmann/json.hpp>

namespace embercache {

int HttpStatusOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return 200;
    case StatusCode::kInvalid:
      return 400;
    case StatusCode::kNotFound:
      return 404;
    case StatusCode::kResourceExhausted:
      return status.retryable() ? 503 : 413;
    case StatusCode::kUnimplemented:
      return 415;
    case StatusCode::kUnavailable:
    case StatusCode::kCancelled:
      return 503;
    case StatusCode::kDeadlineExceeded:
      return 504;
    case StatusCode::kAlreadyExists:
    case StatusCode::kCorruption:
    case StatusCode::kInternal:
      break;
  }
  return 500;
}

std::string Shortened(std::string_view message) {
  constexpr size_t kKeptBytes = 200;  // at each end
  if (message.size() <= 2 * kKeptBytes) return std::string(message);
  std::string text(message.substr(0, kKeptBytes));
  text += "…";
  text += message.substr(message.size() - kKeptBytes);
  return text;
}

HttpResponse ErrorResponse(int http_status, std::string_view code, std::string_view message) {
  HttpResponse response;
  response.status = http_status;
  const nlohmann::ordered_json body = {
      {"error", {{"code", code}, {"message", Shortened(message)}}}};
  response.text = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  return response;
}

HttpResponse ErrorResponse(const Status& status) {
  return ErrorResponse(HttpStatusOf(status), StatusCodeName(status.code()), status.message());
}

}  // namespace embercache
