#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "embercache/status.h"

namespace embercache::mooncake {

// The functions of Mooncake's C ABI that are used here, as store_c.h of Mooncake 0.3.13 declares
// them. The layout of the put configuration differs between versions, so none is ever given.
struct StoreLibrary {
  void* (*create)() = nullptr;
  void (*destroy)(void* store) = nullptr;
  int (*setup)(void* store, const char* local_hostname, const char* metadata_server,
               uint64_t global_segment_size, uint64_t local_buffer_size, const char* protocol,
               const char* device_name, const char* master_server_address) = nullptr;
  int (*batch_put_from)(void* store, const char** keys, void** buffers, const size_t* sizes,
                        size_t count, const void* config, int* results) = nullptr;
  int (*batch_get_into)(void* store, const char** keys, void** buffers, const size_t* sizes,
                        size_t count, int64_t* results) = nullptr;
  int (*batch_is_exist)(void* store, const char** keys, size_t count, int* results) = nullptr;
  int64_t (*get_size)(void* store, const char* key) = nullptr;
  int (*remove)(void* store, const char* key, int force) = nullptr;
  int (*register_buffer)(void* store, void* buffer, size_t size) = nullptr;
  int (*unregister_buffer)(void* store, void* buffer) = nullptr;

  std::string file;  // that it was loaded from

  // By dlopen; stays loaded. NotFound: it does not load, or lacks functions, which are named.
  static Result<StoreLibrary> Load(const std::string& name);
  // OK, or Unavailable where it was built without a transport, or the machine has none: it would
  // stay on another one and fail later.
  Status CheckProtocol(const std::string& protocol) const;
};

}  // namespace embercache::mooncake
