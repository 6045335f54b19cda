#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <string_view>

#include "embercache/status.h"

namespace embercache::mooncake {

// Closes its descriptor. Move-only.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  int get() const { return fd_; }
  int Release();

 private:
  int fd_ = -1;
};

// A connected pair of Unix stream sockets.
struct SocketPair {
  Descriptor ours;
  Descriptor theirs;
};
Result<SocketPair> MakeSocketPair();

// An anonymous file with this text.
Result<Descriptor> MakeTextFile(std::string_view text);

// A child process in a process group of its own, so that a terminal's signals do not reach it. Its
// owner kills and reaps it. Not synchronised.
class Process {
 public:
  // Runs an interpreter, found on PATH, on a script that it finds at descriptor 4, with `control`
  // as descriptor 3. `environment`: "NAME=value", for names that are not set already. Its stderr is
  // ours when `show_stderr`.
  static Result<Process> StartScript(const std::string& interpreter, int script, int control,
                                     std::span<const std::string> environment, bool show_stderr);
  Process(Process&&) noexcept = default;
  // REQUIRES: reaped.
  ~Process() = default;

  pid_t pid() const { return pid_; }
  // Readable once the process has ended.
  int end_fd() const { return end_fd_.get(); }
  void Kill();
  // Waits for its end; says how it ended: "exit code 1", "signal 9".
  std::string Reap();

 private:
  Process(pid_t pid, Descriptor end_fd) : pid_(pid), end_fd_(std::move(end_fd)) {}

  pid_t pid_;
  Descriptor end_fd_;
};

}  // namespace embercache::mooncake
