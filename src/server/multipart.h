#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "embercache/status.h"

namespace embercache {

// One part of a multipart/form-data body.
struct FormPart {
  std::string name;
  bool is_file = false;  // it has a file name, which says nothing else
  std::span<std::byte> content;
};

// The parameter `boundary` of a Content-Type that is multipart/form-data; empty for one that is not
// multipart. Invalid: of another multipart type, or without a boundary of 1 to 70 characters that
// does not end in a blank (RFC 2046).
Result<std::string> MultipartBoundary(std::string_view content_type);

// The parts, in order, where they lie in `body` (RFC 7578). Invalid says what is wrong.
Result<std::vector<FormPart>> ParseMultipart(std::span<std::byte> body, std::string_view boundary,
                                             size_t max_parts);

}  // namespace embercache
