// Invariants:
// 1. A temp file's name has the form that IsTempName knows, and nothing else in the folder has it.
// 2. Its lock is held from before its first byte until it is published or removed.

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
#include "src/store/file/io_error.h"
#include "src/store/file/object_times.h"

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

}  // namespace

TempFile::TempFile(int root_fd, std::string path, UniqueFd fd)
    : root_fd_(root_fd), path_(std::move(path)), fd_(std::move(fd)) {}

TempFile::TempFile(TempFile&& other) noexcept
    : root_fd_(other.root_fd_),
      path_(std::exchange(other.path_, std::string())),
      fd_(std::move(other.fd_)) {}

void TempFile::Discard() {
  if (!path_.empty()) unlinkat(root_fd_, path_.c_str(), 0);
  path_.clear();
}

Result<TempFile> TempFile::Create(int root_fd, const std::string& folder) {
  const std::string path = folder + "/" + NewTempName();
  const auto make = [&] {
    return UniqueFd(openat(root_fd, path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  };
  UniqueFd fd = make();
  if (!fd.valid() && errno == ENOENT) {
    EMBERCACHE_RETURN_IF_ERROR(MakeFolders(root_fd, folder));
    fd = make();
  }
  if (!fd.valid() && errno == EEXIST) return Status::Unavailable(path + " exists");
  if (!fd.valid()) return IoError(errno, "make " + path);
  TempFile file(root_fd, path, std::move(fd));
  if (!TryLock(file.fd())) return IoError(errno, "lock " + path);
  return file;
}

Status TempFile::SetSize(uint64_t bytes) {
  int outcome;
  do {
    outcome = ftruncate(fd(), static_cast<off_t>(bytes));
  } while (outcome != 0 && errno == EINTR);
  return outcome == 0 ? Status::Ok() : IoError(errno, "size " + path_);
}

Status TempFile::Link(const std::string& path, PutMode mode) {
  const unsigned flags = mode == PutMode::kIfAbsent ? RENAME_NOREPLACE : 0;
  int outcome = renameat2(root_fd_, path_.c_str(), root_fd_, path.c_str(), flags);
  if (outcome != 0 && flags != 0 && (errno == EINVAL || errno == ENOSYS)) {
    // Not every file system has RENAME_NOREPLACE (NFS has not); link refuses as atomically.
    outcome = linkat(root_fd_, path_.c_str(), root_fd_, path.c_str(), 0);
    if (outcome == 0) Discard();
  }
  if (outcome != 0) return IoError(errno, "publish " + path);
  path_.clear();
  return Status::Ok();
}

Status TempFile::Publish(const std::string& path, PutMode mode) {
  // A network file system tells of failed writes when a descriptor is closed.
  if (const int copy = dup(fd()); copy < 0 || close(copy) != 0) {
    return IoError(errno, "write " + path_);
  }
  Status status = Link(path, mode);
  if (status.code() != StatusCode::kNotFound) return status;
  EMBERCACHE_RETURN_IF_ERROR(MakeFolders(root_fd_, path.substr(0, path.rfind('/'))));
  return Link(path, mode);
}

Result<TempSweep> SweepTempFiles(int root_fd, const std::string& folder) {
  EMBERCACHE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(root_fd, folder));
  TempSweep sweep;
  for (const std::string& name : names) {
    if (!IsTempName(name)) continue;
    const std::string path = folder + "/" + name;
    const UniqueFd fd(openat(root_fd, path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat info = {};
    if (!fd.valid() || fstat(fd.get(), &info) != 0) continue;
    if (TryLock(fd.get()) && unlinkat(root_fd, path.c_str(), 0) == 0) {
      ++sweep.removed;
    } else {
      sweep.live_bytes += ChargeOf(static_cast<uint64_t>(info.st_size));
    }
  }
  return sweep;
}

}  // namespace embercache
