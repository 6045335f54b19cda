#include "src/cli/text_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace embercache {

Result<std::string> ReadTextFile(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return Status::Invalid(fmt::format("'{}' is a folder; it has to be a file", path));
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return Status::FromErrno(errno, fmt::format("'{}'", path));
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (file.bad()) return Status::FromErrno(errno, fmt::format("'{}'", path));
  return text;
}

}  // namespace embercache
