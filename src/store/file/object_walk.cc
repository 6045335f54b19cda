#include "src/store/file/object_walk.h"

#include <fcntl.h>

#include <utility>

#include "src/store/file/directory.h"
#include "src/store/file/object_name.h"

namespace embercache {
namespace {

constexpr std::string_view kObjectFolder = "aa/bb";

}  // namespace

Status ObjectWalk::Open(std::string folder) {
  EMBERCACHE_ASSIGN_OR_RETURN(auto names, ListFolder(root_fd_, folder.empty() ? "." : folder));
  levels_.push_back({std::move(folder), std::move(names)});
  return Status::Ok();
}

std::optional<WalkedObject> ObjectWalk::Look(const std::string& path,
                                             const std::string& name) const {
  auto id = ObjectId(name);
  if (!id) return std::nullopt;
  WalkedObject object{path, std::move(*id), {}};
  if (fstatat(root_fd_, path.c_str(), &object.info, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  if (!S_ISREG(object.info.st_mode)) return std::nullopt;
  return object;
}

Result<std::optional<WalkedObject>> ObjectWalk::Next() {
  if (!std::exchange(started_, true)) EMBERCACHE_RETURN_IF_ERROR(Open(top_));
  while (!levels_.empty()) {
    Level& level = levels_.back();
    if (level.next == level.names.size()) {
      levels_.pop_back();
      continue;
    }
    const std::string& name = level.names[level.next++];
    const std::string path = level.folder.empty() ? name : level.folder + "/" + name;
    if (level.folder.size() == kObjectFolder.size()) {
      if (path <= after_) continue;
      if (auto object = Look(path, name)) return object;
    } else if (IsFanOutName(name) && path >= after_.substr(0, path.size())) {
      EMBERCACHE_RETURN_IF_ERROR(Open(path));
    }
  }
  return std::optional<WalkedObject>();
}

}  // namespace embercache
