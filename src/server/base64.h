#pragma once

#include <cstddef>
#include <span>

#include "embercache/status.h"

namespace embercache {

// Decodes base64 (RFC 4648, the standard alphabet, with or without padding, no line breaks) in
// place, and gives the part of `text` that holds the bytes now. Invalid says what is wrong, and at
// which character, counted from 0; then `text` is undefined.
Result<std::span<std::byte>> DecodeBase64InPlace(std::span<std::byte> text);

}  // namespace embercache
