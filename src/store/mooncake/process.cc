#include "src/store/mooncake/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "src/store/mooncake/protocol.h"

namespace embercache::mooncake {
namespace {

constexpr int kFileFd = 4;

// The environment, with what it does not name already.
std::vector<char*> EnvironmentWith(std::span<const std::string> additions) {
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
  for (const std::string& addition : additions) {
    const std::string name = addition.substr(0, addition.find('='));
    if (getenv(name.c_str()) == nullptr) environment.push_back(const_cast<char*>(addition.c_str()));
  }
  environment.push_back(nullptr);
  return environment;
}

// A copy of a descriptor above those that the child gets, so that placing one does not cover
// another.
Descriptor Above(int fd) {
  return Descriptor(fcntl(fd, F_DUPFD_CLOEXEC, 10));
}

}  // namespace

Result<SocketPair> MakeSocketPair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    return Status::FromErrno(errno, "mooncake: socketpair");
  }
  return SocketPair{Descriptor(fds[0]), Descriptor(fds[1])};
}

Result<Descriptor> MakeFile(std::string_view content) {
  Descriptor file(memfd_create("embercache-bridge", MFD_CLOEXEC));
  if (file.get() < 0) return Status::FromErrno(errno, "mooncake: memfd_create");
  if (pwrite(file.get(), content.data(), content.size(), 0) !=
      static_cast<ssize_t>(content.size())) {
    return Status::FromErrno(errno, "mooncake: writing the bridge's program");
  }
  return file;
}

Result<std::unique_ptr<Host>> Process::Start(const std::string& program,
                                             std::span<const std::string> words, int control,
                                             int file, std::span<const std::string> environment,
                                             bool show_stderr) {
  const Descriptor high_control = Above(control);
  const Descriptor high_file = Above(file);
  if (high_control.get() < 0 || high_file.get() < 0) {
    return Status::FromErrno(errno, "mooncake: descriptors for the bridge");
  }
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
  if (!show_stderr) posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&files, high_control.get(), kControlFd);
  posix_spawn_file_actions_adddup2(&files, high_file.get(), kFileFd);

  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);

  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const std::vector<char*> variables = EnvironmentWith(environment);
  pid_t pid = -1;
  const int error =
      posix_spawnp(&pid, program.c_str(), &files, &attributes, arguments.data(), variables.data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return Status::FromErrno(error, fmt::format("the bridge runs by '{}'", program));
  }
  const int end_fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  const int end_error = errno;
  std::unique_ptr<Host> process(new Process(pid, Descriptor(end_fd)));
  if (end_fd >= 0) return process;
  process->Kill();
  process->Reap();
  return Status::FromErrno(end_error, "mooncake: pidfd_open");
}

void Process::Kill() {
  kill(pid_, SIGKILL);
}

std::string Process::Reap() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0) {
    if (errno != EINTR) return fmt::format("waitpid: {}", std::strerror(errno));
  }
  return WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status))
                             : fmt::format("exit code {}", WEXITSTATUS(status));
}

}  // namespace embercache::mooncake
