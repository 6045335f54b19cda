#pragma once

#include <string_view>

namespace embercache {

// GET /openapi.json: the HTTP interface as OpenAPI 3.1.
extern const std::string_view kOpenApi;

}  // namespace embercache
