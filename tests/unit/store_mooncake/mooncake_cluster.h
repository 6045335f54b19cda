#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "embercache/status.h"
#include "embercache/store.h"

namespace embercache {

// A mooncake_master and a mooncake_client that owns the only segment, of the package in .venv, on
// the loopback of a network namespace: their data ports listen on all interfaces. Aborts with one
// line where the machine does not allow that.
class MooncakeCluster {
 public:
  struct Options {
    std::string segment = "1GB";
    std::string lease_ms = "10000";
  };

  // Moves this process into a network namespace of its own; call it before any thread, once.
  static void EnterNamespace();

  explicit MooncakeCluster(Options options);
  MooncakeCluster() : MooncakeCluster(Options()) {}
  // Kills both.
  ~MooncakeCluster();
  MooncakeCluster(const MooncakeCluster&) = delete;
  MooncakeCluster& operator=(const MooncakeCluster&) = delete;

  void StartMaster();
  void StartOwner();
  void Signal(pid_t pid, int signal);
  pid_t master() const { return master_; }
  pid_t owner() const { return owner_; }
  // Kills and reaps it.
  void KillMaster();
  void KillOwner();

  // Runs a program in Python that has the package `mooncake`; its exit code.
  static int RunPython(const std::string& program);

  // A store on it that is up; `options` as in JSON, each with a comma before it.
  Result<std::unique_ptr<EmbeddingStore>> Open(const std::string& options = "");
  // A store on it as it is.
  Result<std::unique_ptr<EmbeddingStore>> OpenAnyway(const std::string& options = "");

 private:
  static pid_t Start(const std::string& program, const std::vector<std::string>& words,
                     bool quiet = true);

  const Options options_;
  pid_t master_ = -1;
  pid_t owner_ = -1;
};

}  // namespace embercache
