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

namespace embercache::mooncake {
namespace {

constexpr int kControlFd = 3;
constexpr int kScriptFd = 4;

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

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = other.Release();
  }
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

int Descriptor::Release() {
  return std::exchange(fd_, -1);
}

Result<SocketPair> MakeSocketPair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    return Status::FromErrno(errno, "mooncake: socketpair");
  }
  return SocketPair{Descriptor(fds[0]), Descriptor(fds[1])};
}

Result<Descriptor> MakeTextFile(std::string_view text) {
  Descriptor file(memfd_create("embercache-bridge", MFD_CLOEXEC));
  if (file.get() < 0) return Status::FromErrno(errno, "mooncake: memfd_create");
  if (pwrite(file.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return Status::FromErrno(errno, "mooncake: writing the bridge's script");
  }
  return file;
}

Result<Process> Process::StartScript(const std::string& interpreter, int script, int control,
                                     std::span<const std::string> environment, bool show_stderr) {
  const Descriptor high_control = Above(control);
  const Descriptor high_script = Above(script);
  if (high_control.get() < 0 || high_script.get() < 0) {
    return Status::FromErrno(errno, "mooncake: descriptors for the bridge");
  }
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
  if (!show_stderr) posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&files, high_control.get(), kControlFd);
  posix_spawn_file_actions_adddup2(&files, high_script.get(), kScriptFd);

  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);

  std::string words[] = {interpreter, fmt::format("/proc/self/fd/{}", kScriptFd)};
  char* const arguments[] = {words[0].data(), words[1].data(), nullptr};
  const std::vector<char*> variables = EnvironmentWith(environment);
  pid_t pid = -1;
  const int error =
      posix_spawnp(&pid, interpreter.c_str(), &files, &attributes, arguments, variables.data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return Status::FromErrno(error, fmt::format("mooncake: python is '{}'", interpreter));
  }
  Descriptor end_fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  Process process(pid, std::move(end_fd));
  if (process.end_fd() >= 0) return process;
  const Status failure = Status::FromErrno(errno, "mooncake: pidfd_open");
  process.Kill();
  process.Reap();
  return failure;
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
