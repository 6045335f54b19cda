#pragma once

#include <string>
#include <vector>

#include "embercache/status.h"
#include "src/store/file/unique_fd.h"

namespace embercache {

// Opens the folder, which is made, with those above it, where it is missing. Errors name the path.
Result<UniqueFd> OpenOrMakeFolder(const std::string& path);

// Makes each folder of the relative path that is missing.
Status MakeFolders(int root_fd, const std::string& path);

// The names in a folder, sorted, without "." and "..". None when it is not there, or no folder.
Result<std::vector<std::string>> ListFolder(int root_fd, const std::string& path);

}  // namespace embercache
