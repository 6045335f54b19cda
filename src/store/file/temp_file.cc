// Invariants:
// 1. A temp file's name has the form that IsTempName knows, and nothing else in the folder has it.
// 2. Its lock is held from before the first byte until the file is published or removed. Between
//    its creation and its lock a cleaner may remove it: then it has no link, and Create tries
//    again.

#include "src/store/file/temp_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <random>
#include <string_view>
#include <utility>

#include "src/store/file/directory.h"

namespace embercache {
namespace {

constexpr std::string_view kPrefix = "put-";
constexpr std::string_view kSuffix = ".tmp";

std::string NewTempName() {
  std::random_device random;
  return fmt::format("{}{:08x}{:08x}{}", kPrefix, random(), random(), kSuffix);
}

bool IsTempName(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return false;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(kSuffix.size());
  return name.size() == 16 && name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// False with errno set when another description holds the lock (EAGAIN) or there are no locks.
bool TryLock(int fd) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

bool HasNoLink(int fd) {
  struct stat info = {};
  return fstat(fd, &info) == 0 && info.st_nlink == 0;
}

}  // namespace

TempFile::TempFile(int root_fd, std::string path, UniqueFd fd)
    : root_fd_(root_fd), path_(std::move(path)), fd_(std::move(fd)) {}

TempFile::TempFile(TempFile&& other) noexcept
    : root_fd_(other.root_fd_),
      path_(std::exchange(other.path_, std::string())),
      fd_(std::move(other.fd_)) {}

TempFile::~TempFile() {
  if (!path_.empty()) unlinkat(root_fd_, path_.c_str(), 0);
}

Result<TempFile> TempFile::Create(int root_fd, const std::string& folder) {
  constexpr int kAttempts = 8;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string path = folder + "/" + NewTempName();
    UniqueFd fd(openat(root_fd, path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!fd.valid()) {
      if (errno == EEXIST) continue;
      if (errno != ENOENT) return Status::FromErrno(errno, "make " + path);
      EMBERCACHE_RETURN_IF_ERROR(MakeFolders(root_fd, folder));
      continue;
    }
    TempFile file(root_fd, std::move(path), std::move(fd));
    if (!TryLock(file.fd())) {
      if (errno == EAGAIN || errno == EACCES) continue;
      return Status::FromErrno(errno, "lock " + file.path_);
    }
    if (!HasNoLink(file.fd())) return file;
  }
  return Status::Unavailable("make a temp file in " + folder + ": it keeps disappearing");
}

Status TempFile::Link(const std::string& path, PutMode mode) {
  int outcome;
  if (mode == PutMode::kReplace) {
    outcome = renameat(root_fd_, path_.c_str(), root_fd_, path.c_str());
  } else {
    outcome = renameat2(root_fd_, path_.c_str(), root_fd_, path.c_str(), RENAME_NOREPLACE);
    if (outcome != 0 && (errno == EINVAL || errno == ENOSYS)) {
      // Not every file system has RENAME_NOREPLACE (NFS has not); link refuses as atomically. The
      // destructor removes the first name then.
      if (linkat(root_fd_, path_.c_str(), root_fd_, path.c_str(), 0) == 0) return Status::Ok();
    }
  }
  if (outcome != 0) return Status::FromErrno(errno, "publish " + path);
  path_.clear();
  return Status::Ok();
}

Status TempFile::Publish(const std::string& path, PutMode mode) {
  // A network file system tells of failed writes when a descriptor is closed.
  if (const int copy = dup(fd()); copy < 0 || close(copy) != 0) {
    return Status::FromErrno(errno, "write " + path_);
  }
  Status status = Link(path, mode);
  if (status.code() != StatusCode::kNotFound) return status;
  EMBERCACHE_RETURN_IF_ERROR(MakeFolders(root_fd_, path.substr(0, path.rfind('/'))));
  return Link(path, mode);
}

Result<size_t> RemoveDeadTempFiles(int root_fd, const std::string& folder) {
  EMBERCACHE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(root_fd, folder));
  size_t removed = 0;
  for (const std::string& name : names) {
    if (!IsTempName(name)) continue;
    const std::string path = folder + "/" + name;
    const UniqueFd fd(openat(root_fd, path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!fd.valid() || !TryLock(fd.get())) continue;
    // Names are random, so the name still is the file that was locked, or gone.
    if (unlinkat(root_fd, path.c_str(), 0) == 0) ++removed;
  }
  return removed;
}

}  // namespace embercache
