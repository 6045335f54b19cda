#pragma once

#include <optional>
#include <string_view>

#include "src/server/http_message.h"

namespace embercache {

// Checks what RFC 9112 asks of a head besides its syntax: one Host, and no transfer coding but
// chunked. Fills path and query of `*request` from `target`; of one in absolute form
// ("http://host/path"), the host replaces what the header Host says. An answer: the request is
// refused, and it is not known where its body ends. `version` is 11 for HTTP/1.1. REQUIRES: method
// and headers are filled.
std::optional<HttpResponse> TakeHead(std::string_view target, unsigned version,
                                     HttpRequest* request);

}  // namespace embercache
