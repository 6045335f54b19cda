#pragma once

#include <string>

namespace embercache {

// The name of a model that was given none: that of its folder, wherever a link to it leads.
std::string FolderName(const std::string& dir);

}  // namespace embercache
