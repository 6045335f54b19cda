#pragma once

#include <future>
#include <string>

#include "embercache/status.h"
#include "src/server/encode_server.h"

namespace embercache {

// Asks an encode server that lives in this process, without a network between: the same requests
// go through the same service, cache and pipeline. Thread-safe.
class EncodeClient {
 public:
  // REQUIRES: the server is loaded, and outlives the client.
  explicit EncodeClient(EncodeServer* server);

  // The server's answer to one file: safetensors, or JSON when it failed. What it is, its content
  // decides.
  Result<std::future<HttpResponse>> Encode(const std::string& path) const;

 private:
  EncodeServer* const server_;
  const std::string boundary_;
};

}  // namespace embercache
