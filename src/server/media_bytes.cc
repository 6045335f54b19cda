#include "src/server/media_bytes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <optional>

#include "src/server/base64.h"

// A path is opened with O_PATH first, which touches nothing; where it really led is read back from
// /proc, so no link that is swapped meanwhile leads outside.

namespace embercache {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

std::string ProcPath(const Descriptor& file) {
  return fmt::format("/proc/self/fd/{}", file.get());
}

std::optional<std::string> RealPath(const Descriptor& file) {
  std::array<char, PATH_MAX> target;
  const ssize_t size = readlink(ProcPath(file).c_str(), target.data(), target.size());
  if (size < 0 || static_cast<size_t>(size) == target.size()) return std::nullopt;
  return std::string(target.data(), static_cast<size_t>(size));
}

Status ReadAll(const Descriptor& file, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = read(file.get(), out.data(), out.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::FromErrno(errno, "cannot read the file");
    if (got == 0) return Status::Invalid("the file shrank while it was read");
    out = out.subspan(static_cast<size_t>(got));
  }
  return Status::Ok();
}

}  // namespace

Result<MediaRoot> MediaRoot::Open(const std::string& dir) {
  std::array<char, PATH_MAX> resolved;
  struct stat info;
  if (realpath(dir.c_str(), resolved.data()) == nullptr || stat(resolved.data(), &info) != 0 ||
      !S_ISDIR(info.st_mode)) {
    return Status::NotFound(fmt::format("--media-root '{}' is not a folder", dir));
  }
  MediaRoot root;
  root.real_dir_ = resolved.data();
  if (root.real_dir_.back() != '/') root.real_dir_ += '/';
  return root;
}

Result<std::vector<std::byte>> MediaRoot::Read(const std::string& path, uint64_t max_bytes) const {
  if (real_dir_.empty()) {
    return Status::Invalid("field 'path' is not served: the server has no --media-root");
  }
  const Status refused =
      Status::Invalid("field 'path' does not name a file inside the server's --media-root");
  if (path.empty() || path.find('\0') != std::string::npos) return refused;
  const std::string full = path.front() == '/' ? path : real_dir_ + path;
  const Descriptor place(open(full.c_str(), O_PATH | O_CLOEXEC));
  if (place.get() < 0) return refused;
  const std::optional<std::string> real = RealPath(place);
  struct stat info;
  if (!real || !real->starts_with(real_dir_) || fstat(place.get(), &info) != 0 ||
      !S_ISREG(info.st_mode)) {
    return refused;
  }
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size > max_bytes) {
    return Status(
        StatusCode::kResourceExhausted,
        fmt::format("the file has {} bytes, the limit is {} (--max-body-mb)", size, max_bytes));
  }
  const Descriptor file(open(ProcPath(place).c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return refused;
  std::vector<std::byte> bytes(size);
  EMBERCACHE_RETURN_IF_ERROR(ReadAll(file, bytes));
  return bytes;
}

Result<std::span<const std::byte>> TakeMediaBytes(RequestedItem& item, const MediaRoot& root,
                                                  uint64_t max_bytes,
                                                  std::vector<std::byte>* storage) {
  std::span<const std::byte> media = item.text;
  if (item.form == MediaForm::kBase64) {
    EMBERCACHE_ASSIGN_OR_RETURN(media, DecodeBase64InPlace(item.text));
  } else if (item.form == MediaForm::kPath) {
    EMBERCACHE_ASSIGN_OR_RETURN(*storage, root.Read(item.path, max_bytes));
    media = *storage;
  }
  if (media.empty())
    return Status::Invalid("the item is empty; it has to have the bytes of a file");
  return media;
}

}  // namespace embercache
