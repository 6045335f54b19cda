#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <thread>
#include <vector>

#include "embercache/status.h"
#include "src/store/mooncake/library_client.h"
#include "src/store/mooncake/protocol.h"

namespace embercache::mooncake {

// The other end of a bridge, with a client by the C ABI: what wheel_bridge.py is with the wheel. In
// a process of its own, or on a thread of the program.
class BridgeServer {
 public:
  // `control_fd`: a socket, which stays the caller's. The other end of it may be trusted.
  explicit BridgeServer(int control_fd) : control_fd_(control_fd) {}

  // Serves until the control socket ends. Channels may be at work still.
  void Run();
  // Ends channels, client and mappings; waits for calls that the client is in, however long.
  void End();

 private:
  struct Channel {
    int fd = -1;
    std::thread thread;
  };
  struct Mapping {
    void* memory = nullptr;
    size_t bytes = 0;
  };

  bool ControlRequest(const RequestHead& head, const std::vector<std::byte>& body, int fd);
  Result<std::vector<int64_t>> Map(const std::vector<std::byte>& body, int fd);
  Result<std::vector<int64_t>> Unmap(const std::vector<std::byte>& body);
  Result<std::vector<int64_t>> OpenChannel(int fd);
  void Serve(int fd);

  const int control_fd_;
  LibraryClient client_;
  std::map<uint64_t, Mapping> mappings_;  // by address
  std::vector<Channel> channels_;
};

}  // namespace embercache::mooncake
