#pragma once

#include <string_view>

namespace embercache {

// "0.1.0".
std::string_view Version();
// Of stored objects, docs/formats.md.
inline constexpr int kEnvelopeVersion = 1;

}  // namespace embercache
