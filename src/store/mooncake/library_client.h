#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "embercache/status.h"
#include "src/store/mooncake/protocol.h"
#include "src/store/mooncake/store_library.h"

namespace embercache::mooncake {

// An object of a transfer; without memory where the operation moves no bytes.
struct ClientObject {
  std::string key;
  std::byte* memory = nullptr;
  size_t bytes = 0;
};

// A Mooncake client by the C ABI, on which no call is made but between a set-up that succeeded and
// its end: others crash. SetUp comes first, on one thread; then thread-safe.
class LibraryClient {
 public:
  LibraryClient() = default;
  LibraryClient(const LibraryClient&) = delete;
  LibraryClient& operator=(const LibraryClient&) = delete;

  // `json`: as MooncakeConfig::SetUpJson has it. Says what was loaded. NotFound: there is no such
  // library here.
  Result<std::string> SetUp(std::string_view json);
  // Lets the client go, which may hang. REQUIRES: no call is running, and none comes.
  void End();
  bool ready() const { return store_ != nullptr; }

  // The client's codes.
  int Register(void* memory, size_t bytes) {
    return library_.register_buffer(store_, memory, bytes);
  }
  int Unregister(void* memory) { return library_.unregister_buffer(store_, memory); }
  // One number an object. Internal: the call as a whole failed.
  Result<std::vector<int64_t>> Run(Op op, const std::vector<ClientObject>& objects);

 private:
  StoreLibrary library_;
  void* store_ = nullptr;
};

}  // namespace embercache::mooncake
