#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "embercache/clock.h"
#include "embercache/status.h"
#include "src/server/http_message.h"

namespace embercache {

// One request that waits for its answer. Dropped without one, it answers 500. Thread-safe, but for
// the request itself, which its one handler owns.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  HttpRequest& request() { return request_; }
  // Hands the answer to the connection, which sends it later. REQUIRES: called once.
  virtual void Respond(HttpResponse response) = 0;
  // `gone` is called at most once, on a network thread, when the client closes before it has its
  // answer; at once when it has already.
  virtual void OnClientGone(std::function<void()> gone) = 0;

 protected:
  explicit HttpExchange(HttpRequest request) : request_(std::move(request)) {}
  HttpRequest request_;
};

// What the server does with requests. Called on network threads, so it must not block.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // With the head alone, before a body is read: an answer refuses the request.
  virtual std::optional<HttpResponse> Admit(const HttpRequest& head) = 0;
  virtual void Handle(std::shared_ptr<HttpExchange> exchange) = 0;
  // Every answer is told, those that the server gives by itself too; `head` is empty for what was
  // no HTTP request.
  virtual void OnAnswer(const HttpRequest& head, int status) = 0;
  virtual uint64_t MaxBodyBytes() const = 0;
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;  // 0: any that is free
  size_t threads = 1;
  size_t max_connections = 1024;
  // Bodies of all requests whose answers are not composed yet; more are answered 503.
  uint64_t max_bodies_bytes = uint64_t{256} << 20;
  // A connection may be idle for so long, and has so long to send a head.
  Duration idle_timeout = std::chrono::seconds(75);
  Duration head_timeout = std::chrono::seconds(10);
  // Bodies and answers move at this average rate at least, after a start of `slow_grace`.
  uint64_t min_bytes_per_second = uint64_t{64} << 10;
  Duration slow_grace = std::chrono::seconds(10);
};

// True for localhost and for IP addresses.
bool IsListenAddress(const std::string& host);

// HTTP/1.1 over TCP: connections, heads, bodies, timeouts, answers sent from where they lie.
// Thread-safe.
class HttpServer {
 public:
  // Binds and serves. `handler` outlives the server. Unavailable or Invalid when the address cannot
  // be had; the message names it.
  static Result<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options,
                                                   HttpHandler* handler);
  // Stop(now).
  ~HttpServer();

  // The real one, where 0 was asked for.
  uint16_t port() const;

  // Takes no more connections, lets the requests that run have their answers until `deadline`, then
  // cuts the rest. DeadlineExceeded when something was cut. Idempotent.
  Status Stop(TimePoint deadline);

 private:
  struct Impl;
  explicit HttpServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

}  // namespace embercache
