#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "embercache/status.h"

namespace embercache {

struct WalkedObject {
  std::string path;  // under the root
  std::string id;
  struct stat info = {};
};

// Gives the objects under a folder in the order of their paths, reading one folder at a time. What
// is not an object of ours is passed over. Not thread-safe.
class ObjectWalk {
 public:
  // Walks the folder ("" is the root, or "aa"), from behind the path `after`; "" starts with the
  // first.
  ObjectWalk(int root_fd, std::string_view folder, std::string_view after)
      : root_fd_(root_fd), top_(folder), after_(after) {}

  // nullopt when there are no more.
  Result<std::optional<WalkedObject>> Next();

 private:
  // The names in one folder of each level: "", "aa", "aa/bb".
  struct Level {
    std::string folder;
    std::vector<std::string> names;
    size_t next = 0;
  };

  Status Open(std::string folder);
  std::optional<WalkedObject> Look(const std::string& path, const std::string& name) const;

  const int root_fd_;
  const std::string top_;
  const std::string after_;
  std::vector<Level> levels_;
  bool started_ = false;
};

}  // namespace embercache
