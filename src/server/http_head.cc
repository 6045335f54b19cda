#include "src/server/http_head.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <string>

#include "src/server/error_response.h"

namespace embercache {
namespace {

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

HttpResponse Malformed(std::string_view what) {
  return ErrorResponse(400, StatusCodeName(StatusCode::kInvalid), what);
}

std::optional<HttpResponse> CheckHost(const HttpRequest& request, unsigned version) {
  const auto hosts =
      std::count_if(request.headers.begin(), request.headers.end(),
                    [](const auto& header) { return EqualIgnoringCase(header.first, "Host"); });
  if (hosts > 1) return Malformed("header Host comes more than once");
  if (hosts == 0 && version >= 11) return Malformed("header Host is missing");
  return std::nullopt;
}

std::optional<HttpResponse> CheckTransferCoding(const HttpRequest& request, unsigned version) {
  std::string codings;
  for (const auto& [name, value] : request.headers) {
    if (EqualIgnoringCase(name, "Transfer-Encoding"))
      codings += (codings.empty() ? "" : ", ") + value;
  }
  if (codings.empty()) return std::nullopt;
  if (version < 11) return Malformed("header Transfer-Encoding is not for HTTP/1.0");
  if (EqualIgnoringCase(codings, "chunked")) return std::nullopt;
  return ErrorResponse(
      501, StatusCodeName(StatusCode::kUnimplemented),
      fmt::format("header Transfer-Encoding is '{}'; only chunked is served", codings));
}

void SetHost(std::string_view host, HttpRequest* request) {
  std::erase_if(request->headers,
                [](const auto& header) { return EqualIgnoringCase(header.first, "Host"); });
  request->headers.emplace_back("Host", host);
}

// Takes scheme and host off the front of a target in absolute form.
std::optional<HttpResponse> TakeAuthority(std::string_view* target, HttpRequest* request) {
  constexpr std::string_view kSeparator = "://";
  const size_t scheme_end = target->find(kSeparator);
  const std::string_view scheme = target->substr(0, scheme_end);
  if (scheme_end == std::string_view::npos || scheme.find('/') != std::string_view::npos) {
    return std::nullopt;
  }
  if (!EqualIgnoringCase(scheme, "http") && !EqualIgnoringCase(scheme, "https")) {
    return Malformed(fmt::format("the request's target has the scheme '{}', not http", scheme));
  }
  target->remove_prefix(scheme_end + kSeparator.size());
  const size_t end = std::min(target->find_first_of("/?"), target->size());
  const std::string_view authority = target->substr(0, end);
  if (authority.empty() || authority.find('@') != std::string_view::npos) {
    return Malformed("the request's target has no host, or a user beside it");
  }
  SetHost(authority, request);
  target->remove_prefix(end);
  return std::nullopt;
}

}  // namespace

std::optional<HttpResponse> TakeHead(std::string_view target, unsigned version,
                                     HttpRequest* request) {
  if (auto refusal = CheckHost(*request, version)) return refusal;
  if (auto refusal = CheckTransferCoding(*request, version)) return refusal;
  if (!target.starts_with('/')) {
    if (auto refusal = TakeAuthority(&target, request)) return refusal;
  }
  const size_t question = target.find('?');
  request->path = target.substr(0, question);
  if (request->path.empty()) request->path = "/";
  if (question != std::string_view::npos) request->query = target.substr(question + 1);
  return std::nullopt;
}

}  // namespace embercache
