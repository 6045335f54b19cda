#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "embercache/clock.h"
#include "embercache/status.h"

namespace embercache::mooncake {

// How a client runs.
enum class Way : uint8_t {
  kWheel,      // by the Python wheel, in a process of its own
  kLibrary,    // by the C library, in a process of its own
  kInProcess,  // by the C library, in this process
};
// "wheel", "library", "in_process".
std::string_view NameOf(Way way);

// How to reach a Mooncake cluster. Names and defaults are those of Mooncake's own JSON file.
struct MooncakeConfig {
  std::string master_server_address = "127.0.0.1:50051";
  std::string local_hostname;  // empty: the address from which the master is reached
  std::string metadata_server = "P2PHANDSHAKE";
  std::string protocol = "tcp";  // tcp, rdma or efa
  std::string device_name;
  uint64_t local_buffer_size = 64ULL << 20;
  std::string tenant_id;

  // "auto" or a way's name.
  std::string bridge = "auto";
  // Mooncake's C library, as dlopen finds it.
  std::string library = "libmooncake_store.so";
  bool library_named = false;  // by an option or a variable
  // An interpreter that has the package `mooncake`: a path, or a name on PATH.
  std::string python = "python3";
  // A bridge that leaves a request unanswered for so long is killed.
  Duration bridge_timeout = std::chrono::seconds(45);

  // Objects are payloads alone, as nodes of SGLang's own read and write them.
  bool raw = false;

  // What was given and has no effect, for the log.
  std::vector<std::string> ignored;

  // From the store's JSON; where that says nothing, from MOONCAKE_* of the environment; where that
  // says nothing, from the JSON file that MOONCAKE_CONFIG_PATH names.
  static Result<MooncakeConfig> Parse(std::string_view json);

  // The ways to try, first the best.
  std::vector<Way> Ways() const;
  // What the bridge's set-up takes.
  std::string SetUpJson() const;
};

}  // namespace embercache::mooncake
