#pragma once

// A real redis-server or valkey-server for one test: on loopback and a unix socket, in a folder of
// its own, ended with the test.

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "embercache/store.h"
#include "tests/conformance/temp_folder.h"

struct redisContext;

namespace embercache::redis {

enum class Software : uint8_t { kRedis, kValkey };

// A port of 127.0.0.1 that nothing listens on now.
uint16_t FreePort();

// What the witness (hiredis) read.
struct WitnessReply {
  bool is_error = false;
  bool is_null = false;
  int64_t integer = 0;
  std::string text;
  std::vector<WitnessReply> elements;
};

class TestServer {
 public:
  struct Options {
    Software software = Software::kRedis;
    std::vector<std::string> arguments{};  // more of them, as on its command line
    std::string certificates{};  // a folder that MakeCertificates filled: TLS on port() instead
  };
  TestServer() : TestServer(Options{}) {}
  explicit TestServer(Options options);
  ~TestServer();
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  uint16_t port() const { return port_; }
  std::string socket_path() const { return folder_.path() + "/socket"; }
  std::string url() const { return "redis://127.0.0.1:" + std::to_string(port_); }
  std::string unix_url() const { return "unix://" + socket_path(); }
  const std::string& folder() const { return folder_.path(); }

  void Kill();   // SIGKILL; the port is free then
  void Start();  // again, on the same port, with what its files hold
  void Pause();  // SIGSTOP
  void Resume();

  // Runs a command through the unix socket and hiredis, independent of our client.
  WitnessReply Ask(const std::vector<std::string>& words);
  int64_t Number(const std::vector<std::string>& words) { return Ask(words).integer; }
  std::vector<std::string> Keys();

 private:
  void Connect();
  void Disconnect();

  const Options options_;
  const TempFolder folder_;
  const uint16_t port_;
  pid_t pid_ = -1;
  redisContext* context_ = nullptr;
};

// Fills the folder with ca.pem, and with NAME.pem and NAME.key, signed by it, for each of: server
// (127.0.0.1 and localhost), stranger (another host's name), client. A second authority, other.pem,
// signed none of them.
void MakeCertificates(const std::string& folder);

// Three masters, each with a third of the slots, and the replicas that are added.
class TestCluster {
 public:
  TestCluster();
  TestServer& server(size_t i) { return *servers_[i]; }
  // Adds a replica of that master, in step with it; returns its index.
  size_t AddReplica(size_t master);
  std::string id(size_t i) { return server(i).Ask({"CLUSTER", "MYID"}).text; }
  // The keys of all servers.
  std::vector<std::string> Keys();
  // The server that has the slot by the layout the Cluster began with.
  static size_t OwnerOf(uint16_t slot) { return slot < 5461 ? 0 : slot < 10923 ? 1 : 2; }

 private:
  void Add();

  std::vector<std::unique_ptr<TestServer>> servers_;
};

// Creates the backend on this configuration; aborts the test program where that fails.
std::unique_ptr<EmbeddingStore> OpenStore(const std::string& json);
// The same on a URL alone.
std::unique_ptr<EmbeddingStore> OpenStoreAt(const std::string& url);

}  // namespace embercache::redis
