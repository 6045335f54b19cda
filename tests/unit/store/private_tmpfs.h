#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "tests/conformance/temp_folder.h"

namespace embercache {

// A small tmpfs of its own, mounted where no other process sees it: a disk that can be full.
// Moves this process into a mount namespace of its own, so make it before any thread.
class PrivateTmpfs {
 public:
  // `options` as mount(8) takes them: "size=32m".
  explicit PrivateTmpfs(const std::string& options) {
    if (unshare(CLONE_NEWNS) != 0 && !UnshareAsUser()) {
      Fail("no mount namespace of its own");
    } else if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
      Fail("mounts can't be made private");
    } else if (mount("tmpfs", path().c_str(), "tmpfs", 0, options.c_str()) != 0) {
      Fail("no tmpfs can be mounted");
    }
  }
  ~PrivateTmpfs() { umount2(path().c_str(), MNT_DETACH); }

  // Empty when the tmpfs is there; else one line that says what this machine lacks.
  const std::string& error() const { return error_; }
  const std::string& path() const { return folder_.path(); }

 private:
  void Fail(const std::string& what) {
    error_ = fmt::format("this test needs root or user namespaces: {}: {}", what, strerror(errno));
  }

  static bool WriteFile(const char* path, const std::string& text) {
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    close(fd);
    return written;
  }

  static bool UnshareAsUser() {
    const auto uid = geteuid();
    const auto gid = getegid();
    return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 &&
           WriteFile("/proc/self/uid_map", fmt::format("0 {} 1", uid)) &&
           WriteFile("/proc/self/setgroups", "deny") &&
           WriteFile("/proc/self/gid_map", fmt::format("0 {} 1", gid));
  }

  TempFolder folder_;
  std::string error_;
};

}  // namespace embercache
