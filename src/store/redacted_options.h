#pragma once

#include <string>
#include <string_view>

namespace embercache {

// The options of a store, a JSON object as text, for logs and for people: passwords and the like
// are "***", also those in URLs, and so are texts and numbers in nested objects, whose meaning only
// a plugin knows. "***" for what is no JSON object.
std::string RedactedOptions(std::string_view json);

// "scheme://user:password@host" and "user:password@host" with "***" before the '@'; else as it is.
std::string WithoutUser(const std::string& address);

}  // namespace embercache
