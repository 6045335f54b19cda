#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace embercache {

// A folder of its own for a test, removed with all that is in it at the end.
class TempFolder {
 public:
  TempFolder() : path_(std::filesystem::temp_directory_path() / "embercache-test-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace embercache
