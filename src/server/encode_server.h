#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "embercache/clock.h"
#include "embercache/status.h"
#include "src/server/http_server.h"
#include "src/server/limits.h"
#include "src/store/open_store.h"

namespace embercache {

// Names differ, also those of folders.
struct ModelSource {
  std::string name;  // in requests; empty: the folder's
  std::string dir;
};

// What `embercache serve` is asked for; the flags of docs/operations.md.
struct EncodeServerOptions {
  std::vector<ModelSource> models;
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  bool enable_global_cache = false;
  StoreChoice store;
  uint64_t pool_bytes = 0;
  std::string tenant_salt;
  uint64_t epoch = 0;
  Limits limits;
  uint64_t max_pixels = 178'000'000;
  uint32_t max_batch_items = 1;
  Duration max_batch_wait{};
  std::string media_root;
  // Called as loading goes on: what is loaded, and how much of it in bytes; may be empty.
  std::function<void(std::string_view stage, uint64_t done, uint64_t total)> progress;
};

// The encode server: HTTP, encoders, and the cache between them. Two steps, so that it answers
// /health, and others learn that it is starting, while models load.
class EncodeServer {
 public:
  // Opens what the options name, then binds the address and answers there from now on. Invalid: an
  // option is wrong. Others: a local store, a model's or the media folder, or the address cannot be
  // had. A remote store that is down is no error.
  static Result<std::unique_ptr<EncodeServer>> Listen(EncodeServerOptions options);
  // The same without an address: requests come by Handle.
  static Result<std::unique_ptr<EncodeServer>> InProcess(EncodeServerOptions options);
  // Stop(now).
  ~EncodeServer();

  // REQUIRES: it listens.
  uint16_t port() const;

  // A POST /v1/encode, as one that came over the network. REQUIRES: loaded. Thread-safe.
  void Handle(std::shared_ptr<HttpExchange> exchange);

  // Loads the models, makes the host cache; then /ready says so. Fails when the server cannot
  // serve.
  Status Load();

  // For requests that come from now on. Thread-safe.
  void SetLimits(const Limits& limits);

  // Takes no more requests, finishes those that run and publishes what is queued, until
  // `deadline`. DeadlineExceeded when something had to be left behind: end the process with _exit.
  // Idempotent.
  Status Stop(TimePoint deadline);

 private:
  struct Impl;
  explicit EncodeServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace embercache
