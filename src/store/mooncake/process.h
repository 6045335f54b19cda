#pragma once

#include <sys/types.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "embercache/status.h"
#include "src/store/mooncake/descriptor.h"
#include "src/store/mooncake/host.h"

namespace embercache::mooncake {

// A connected pair of Unix stream sockets.
struct SocketPair {
  Descriptor ours;
  Descriptor theirs;
};
Result<SocketPair> MakeSocketPair();

// An anonymous file that holds this.
Result<Descriptor> MakeFile(std::string_view content);

// Where a child finds the file that Process::Start gives it.
inline constexpr const char* kFilePath = "/proc/self/fd/4";

// A child process in a process group of its own, so that a terminal's signals do not reach it.
class Process final : public Host {
 public:
  // Runs `program`, found on PATH, with `words` (its name first), `control` as descriptor 3 and
  // `file` as descriptor 4. `environment`: "NAME=value", for names that are not set already. Its
  // stderr is ours when `show_stderr`.
  static Result<std::unique_ptr<Host>> Start(const std::string& program,
                                             std::span<const std::string> words, int control,
                                             int file, std::span<const std::string> environment,
                                             bool show_stderr);

  pid_t pid() const override { return pid_; }
  int end_fd() const override { return end_fd_.get(); }
  void Kill() override;
  std::string Reap() override;
  void Abandon() override {}  // SIGKILL is not refused

 private:
  Process(pid_t pid, Descriptor end_fd) : pid_(pid), end_fd_(std::move(end_fd)) {}

  pid_t pid_;
  Descriptor end_fd_;
};

}  // namespace embercache::mooncake
