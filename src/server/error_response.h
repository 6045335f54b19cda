#pragma once

#include <string>
#include <string_view>

#include "embercache/status.h"
#include "src/server/http_message.h"

namespace embercache {

// The HTTP status of an outcome: 400 Invalid, 404 NotFound, 413 ResourceExhausted over a limit and
// 503 when a later try may succeed, 415 Unimplemented, 503 Unavailable and Cancelled, 504
// DeadlineExceeded, 500 the rest.
int HttpStatusOf(const Status& status);

// A message that repeats a long value of the request, without the middle of it.
std::string Shortened(std::string_view message);

// {"error":{"code","message"}}, the message shortened.
HttpResponse ErrorResponse(int http_status, std::string_view code, std::string_view message);
HttpResponse ErrorResponse(const Status& status);

}  // namespace embercache
