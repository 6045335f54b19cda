#pragma once

#include <string>

#include "embercache/status.h"

namespace embercache {

// What a file holds; a pipe will do. NotFound and others name it, and a folder is Invalid.
Result<std::string> ReadTextFile(const std::string& path);

}  // namespace embercache
