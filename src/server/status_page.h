#pragma once

#include <string_view>

namespace embercache {

// GET /: one HTML document without outside resources, which shows what /v1/stats and /metrics say.
extern const std::string_view kStatusPage;

}  // namespace embercache
