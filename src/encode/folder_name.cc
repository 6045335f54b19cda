#include "src/encode/folder_name.h"

#include <filesystem>
#include <system_error>

namespace embercache {

std::string FolderName(const std::string& dir) {
  std::error_code error;
  const auto path = std::filesystem::canonical(dir, error);
  return (error ? std::filesystem::path(dir) : path).filename().string();
}

}  // namespace embercache
