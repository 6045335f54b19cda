#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "src/server/http_server.h"

namespace embercache {

// Bytes of bodies that are in memory now, over all connections. Thread-safe.
class BodyBudget {
 public:
  explicit BodyBudget(uint64_t limit) : limit_(limit) {}

  // What one request holds of it.
  class Charge {
   public:
    explicit Charge(std::shared_ptr<BodyBudget> budget) : budget_(std::move(budget)) {}
    ~Charge() { budget_->used_.fetch_sub(bytes_); }
    Charge(const Charge&) = delete;
    Charge& operator=(const Charge&) = delete;
    // Both: false when there is no room now.
    bool Fits(uint64_t bytes) const { return budget_->used_ + bytes <= budget_->limit_; }
    bool Add(uint64_t bytes);

   private:
    const std::shared_ptr<BodyBudget> budget_;
    uint64_t bytes_ = 0;
  };

 private:
  const uint64_t limit_;
  std::atomic<uint64_t> used_{0};
};

// What the connections of one server share.
struct HttpContext {
  HttpServerOptions options;
  HttpHandler* handler;
  std::shared_ptr<BodyBudget> bodies;
};

// One connection. All members but the thread-safe ones belong to the socket's strand.
class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(boost::asio::ip::tcp::socket socket, std::shared_ptr<const HttpContext> context);

  // Serves requests until the connection ends. REQUIRES: runs on the socket's executor.
  boost::asio::awaitable<void> Run();
  // Answers 503 and ends: there are too many connections.
  boost::asio::awaitable<void> Refuse();

  // Ends the connection as soon as no request is being served. Thread-safe.
  void Drain();
  // Since when it waits for a request to begin; TimePoint::max() while it does not, and once it is
  // to end. Thread-safe.
  TimePoint idle_since() const { return idle_since_; }
  // Ends it now. Thread-safe.
  void Abort();

 private:
  class Exchange;
  struct Incoming;

  // True: the connection can serve another one.
  boost::asio::awaitable<bool> ServeOne();
  boost::asio::awaitable<bool> WaitForRequest();
  // An answer: the body was refused or did not come.
  boost::asio::awaitable<std::optional<HttpResponse>> ReadBody(Incoming& incoming);
  boost::asio::awaitable<std::optional<HttpResponse>> ReadSizedBody(Incoming& incoming,
                                                                    uint64_t size);
  boost::asio::awaitable<std::optional<HttpResponse>> ReadChunkedBody(Incoming& incoming);
  boost::asio::awaitable<bool> SendContinue();
  boost::asio::awaitable<bool> DiscardBody(uint64_t size);
  // Nothing: the client went away.
  boost::asio::awaitable<std::optional<HttpResponse>> AwaitAnswer(
      std::shared_ptr<HttpExchange> exchange);
  boost::asio::awaitable<bool> Send(const HttpRequest& request, HttpResponse response,
                                    bool keep_alive);
  // Reads what the client still sends, so that it gets to see the answer before the reset.
  boost::asio::awaitable<void> Linger();

  void WatchClient();
  // Takes what came before its time, so that the end behind it is seen; no more than the buffer has
  // room for.
  void ReadAhead();
  // After the client's last byte: has it left, or does it only send no more? A socket that is
  // closed answers anything that is written with a reset; clients of HTTP/1.1 pass over an interim
  // answer. One of HTTP/1.0 is taken to wait.
  void ProbeClient();
  void ClientGone();
  // Cancels what the socket waits for at `when`.
  void SetDeadline(TimePoint when);
  // When a transfer that began at `start` and moved `bytes` has become too slow.
  TimePoint SlowAfter(TimePoint start, uint64_t bytes) const;

  const std::shared_ptr<const HttpContext> context_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer deadline_;
  // Never expires; cancelled when the answer is here or the client is gone.
  boost::asio::steady_timer answered_;
  boost::beast::flat_buffer buffer_;
  bool idle_ = false;
  std::atomic<TimePoint> idle_since_{TimePoint::max()};
  bool draining_ = false;
  bool linger_ = false;
  bool waiting_ = false;  // for an answer
  bool probes_ = false;
  bool gone_ = false;
  std::optional<HttpResponse> answer_;
  std::function<void()> on_gone_;
  std::atomic<bool> ended_{false};
};

}  // namespace embercache
