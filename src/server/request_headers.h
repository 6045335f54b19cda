#pragma once

#include <string>
#include <string_view>

#include "embercache/clock.h"
#include "embercache/status.h"
#include "src/server/http_message.h"

namespace embercache {

// Invalid unless `id` can go back in a header; `what` names it.
Status CheckRequestId(std::string_view what, const std::string& id);

// The header X-Request-Id. A new one where there is none and, beside Invalid, where it is wrong:
// what is refused has an id too.
Status ReadRequestId(const HttpRequest& request, std::string* id);

// When the request has to be answered: by `limit`, or sooner by the header X-Request-Timeout-Ms.
Result<TimePoint> DeadlineOf(const HttpRequest& request, Duration limit);

// Until when an answer made now may be sent: by the request's deadline too, but one that was made
// late gets a second.
TimePoint SendDeadline(TimePoint request_deadline);

}  // namespace embercache
