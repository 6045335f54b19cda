#include "tests/unit/store_mooncake/mooncake_cluster.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "src/store/mooncake/mooncake_store.h"

namespace embercache {
namespace {

constexpr uint16_t kMasterPort = 50051;
constexpr uint16_t kOwnerPort = 50052;
constexpr auto kPatience = std::chrono::seconds(60);

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "mooncake test: %s\n", what.c_str());
  std::exit(1);
}

void WriteFile(const char* path, const std::string& text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0 || write(fd, text.data(), text.size()) < 0) Fail(fmt::format("writing {}", path));
  close(fd);
}

void BringLoopbackUp() {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strncpy(request.ifr_name, "lo", sizeof request.ifr_name - 1);
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (ioctl(fd, SIOCSIFFLAGS, &request) != 0) Fail("the loopback does not come up");
  close(fd);
}

bool Listens(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool connected = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return connected;
}

void WaitFor(const std::string& what, const std::function<bool()>& condition) {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > give_up) Fail(what + " does not come up");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// The folder of the package `mooncake` in .venv.
std::string PackageFolder() {
  const std::filesystem::path lib = std::filesystem::path(MOONCAKE_PYTHON).parent_path() / "../lib";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(lib, error)) {
    const auto folder = entry.path() / "site-packages/mooncake";
    if (std::filesystem::exists(folder / "mooncake_master")) return folder;
  }
  Fail(
      "the Python package mooncake-transfer-engine-non-cuda is not in .venv: run "
      "scripts/bootstrap");
}

}  // namespace

void MooncakeCluster::EnterNamespace() {
  const auto uid = geteuid();
  const auto gid = getegid();
  if (unshare(CLONE_NEWNET) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
      Fail(fmt::format("needs root or user namespaces: {}", std::strerror(errno)));
    }
    WriteFile("/proc/self/uid_map", fmt::format("0 {} 1", uid));
    WriteFile("/proc/self/setgroups", "deny");
    WriteFile("/proc/self/gid_map", fmt::format("0 {} 1", gid));
  }
  BringLoopbackUp();
}

MooncakeCluster::MooncakeCluster(Options options) : options_(std::move(options)) {
  StartMaster();
  StartOwner();
}

MooncakeCluster::~MooncakeCluster() {
  KillOwner();
  KillMaster();
}

pid_t MooncakeCluster::Start(const std::string& program, const std::vector<std::string>& words,
                             bool quiet) {
  std::vector<std::string> all = {program};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  for (std::string& word : all) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) Fail("fork");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    const int null = open("/dev/null", O_RDWR);
    dup2(null, 1);
    if (quiet) dup2(null, 2);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  return pid;
}

void MooncakeCluster::StartMaster() {
  master_ = Start(PackageFolder() + "/mooncake_master",
                  {"--rpc_address=127.0.0.1", fmt::format("--rpc_port={}", kMasterPort),
                   "--metrics_host=127.0.0.1", "--metrics_port=9003",
                   "--default_kv_lease_ttl=" + options_.lease_ms});
  WaitFor("the master", [] { return Listens(kMasterPort); });
}

void MooncakeCluster::StartOwner() {
  owner_ = Start(
      PackageFolder() + "/mooncake_client",
      {"--host=127.0.0.1", fmt::format("--port={}", kOwnerPort), "--metadata_server=P2PHANDSHAKE",
       fmt::format("--master_server_address=127.0.0.1:{}", kMasterPort),
       "--global_segment_size=" + options_.segment, "--local_buffer_size=16MB"});
  WaitFor("the owner", [] { return Listens(kOwnerPort); });
}

int MooncakeCluster::RunPython(const std::string& program) {
  const pid_t pid = Start(MOONCAKE_PYTHON, {"-c", program}, false);
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void MooncakeCluster::Signal(pid_t pid, int signal) {
  kill(pid, signal);
}

void MooncakeCluster::KillMaster() {
  if (master_ < 0) return;
  kill(master_, SIGKILL);
  waitpid(master_, nullptr, 0);
  master_ = -1;
}

void MooncakeCluster::KillOwner() {
  if (owner_ < 0) return;
  kill(owner_, SIGKILL);
  waitpid(owner_, nullptr, 0);
  owner_ = -1;
}

Result<std::unique_ptr<EmbeddingStore>> MooncakeCluster::OpenAnyway(const std::string& options) {
  // By the wheel, unless the C library is what is tested.
  const char* const library = getenv("MOONCAKE_LIBRARY_UNDER_TEST");
  const std::string way = library == nullptr
                              ? R"("bridge":"wheel")"
                              : fmt::format(R"("bridge":"library","library":"{}")", library);
  StoreConfig config;
  config.json = fmt::format(R"({{"master_server_address":"127.0.0.1:{}","python":"{}",{}{}}})",
                            kMasterPort, MOONCAKE_PYTHON, way, options);
  return CreateMooncakeStore(config);
}

Result<std::unique_ptr<EmbeddingStore>> MooncakeCluster::Open(const std::string& options) {
  EMBERCACHE_ASSIGN_OR_RETURN(auto store, OpenAnyway(options));
  WaitFor("the store", [&] { return store->Health().state == StoreState::kUp; });
  return store;
}

}  // namespace embercache
