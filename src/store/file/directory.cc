#include "src/store/file/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>

#include "src/store/file/io_error.h"

namespace embercache {
namespace {

constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

}  // namespace

Status MakeFolders(int root_fd, const std::string& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (mkdirat(root_fd, part.c_str(), 0777) != 0 && errno != EEXIST) {
      return IoError(errno, "make folder " + part);
    }
    if (end == std::string::npos) return Status::Ok();
  }
}

Result<UniqueFd> OpenOrMakeFolder(const std::string& path) {
  UniqueFd fd(open(path.c_str(), kFolderFlags));
  if (!fd.valid() && errno == ENOENT) {
    EMBERCACHE_RETURN_IF_ERROR(MakeFolders(AT_FDCWD, path));
    fd = UniqueFd(open(path.c_str(), kFolderFlags));
  }
  if (!fd.valid()) return IoError(errno, "open folder " + path);
  return fd;
}

Result<std::vector<std::string>> ListFolder(int root_fd, const std::string& path) {
  std::vector<std::string> names;
  UniqueFd fd(openat(root_fd, path.c_str(), kFolderFlags | O_NOFOLLOW));
  if (!fd.valid() && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)) return names;
  if (!fd.valid()) return IoError(errno, "open folder " + path);
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(fdopendir(fd.get()), closedir);
  if (folder == nullptr) return IoError(errno, "read folder " + path);
  static_cast<void>(fd.release());  // closedir closes it
  while (true) {
    errno = 0;
    const dirent* entry = readdir(folder.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return IoError(errno, "read folder " + path);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace embercache
