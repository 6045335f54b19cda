#pragma once

#include <string>
#include <string_view>

namespace embercache {

// The options of a store, a JSON object as text, for logs and for people: passwords and the like
// are "***", also those in URLs, and so is text in nested objects, whose meaning only a plugin
// knows. "***" for what is no JSON object.
std::string RedactedOptions(std::string_view json);

}  // namespace embercache
