#pragma once

#include <string>
#include <string_view>

#include "embercache/clock.h"
#include "embercache/status.h"
#include "src/server/http_message.h"

namespace embercache {

// Invalid unless `id` can go back in a header; `what` names it.
Status CheckRequestId(std::string_view what, const std::string& id);

// The header X-Request-Id; empty when there is none.
Result<std::string> RequestIdOf(const HttpRequest& request);
std::string MakeRequestId();

// When the request has to be answered: by `limit`, or sooner by the header X-Request-Timeout-Ms.
Result<TimePoint> DeadlineOf(const HttpRequest& request, Duration limit);

// Until when an answer made now may be sent: by the request's deadline too, but one that was made
// late gets a second.
TimePoint SendDeadline(TimePoint request_deadline);

}  // namespace embercache
