#pragma once

#include <sys/socket.h>

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "embercache/clock.h"
#include "embercache/status.h"
#include "src/store/redis/redis_config.h"
#include "src/store/redis/request.h"
#include "src/store/redis/resp_parser.h"
#include "src/store/redis/resp_value.h"
#include "src/store/redis/transport.h"

namespace embercache::redis {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

// What a server said of itself.
struct ServerInfo {
  std::string software;  // "redis", "valkey"; empty before version 6
  std::string version;
  bool cluster = false;
};

// One connection to a server, over its whole life: connect, TLS, HELLO, then pipelined requests.
// Replies go to requests in the order in which these were sent; where that order is no longer sure,
// the connection is closed. Can be started again once closed. Used from one thread only.
class Connection {
 public:
  // The most that is sent and not yet answered, in bytes of both ways; a single larger request goes
  // alone.
  static constexpr uint64_t kMaxBytesInFlight = 8 << 20;

  // Told by a connection from within Handle, Flush, Abandon, CheckTime and Close.
  class Owner {
   public:
    virtual void OnReady(Connection& connection) = 0;
    // All replies of the request's step are in.
    virtual void OnReplied(Connection& connection, Request& request) = 0;
    // Its memory is no longer touched. `unanswered`: in the order in which they were submitted.
    virtual void OnClosed(Connection& connection, bool was_ready, const Status& why,
                          const std::vector<Request*>& unanswered) = 0;

   protected:
    ~Owner() = default;
  };

  Connection(const RedisConfig& config, TlsContext* tls, int epoll_fd, Owner& owner);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Begins to connect. A failure to begin is returned, and OnClosed is not told.
  // REQUIRES: closed().
  Status Start(const SocketAddress& address, const std::string& host, TimePoint now);
  void Close(const Status& why);

  bool closed() const { return phase_ == Phase::kClosed; }
  bool ready() const { return phase_ == Phase::kReady; }
  // Events are to be expected.
  bool busy() const { return !closed() && (!ready() || !in_flight_.empty()); }
  TimePoint ready_since() const { return ready_since_; }
  const ServerInfo& info() const { return info_; }
  uint64_t bytes_in_flight() const { return bytes_in_flight_; }
  bool HasRoomFor(const Request& request) const;
  // Whether a transaction is between its first and its second step here.
  bool in_transaction() const { return in_transaction_; }

  // Queues the request's current step; Flush sends it.
  // REQUIRES: ready().
  void Submit(Request& request, TimePoint now);
  // Lets go of a request, for good: on return nothing reads or writes its memory. Closes the
  // connection where that is the only way.
  void Abandon(Request& request, TimePoint now);

  // What epoll said of the socket.
  void Handle(uint32_t events, TimePoint now);
  // Sends what is queued, as far as the socket takes it.
  void Flush(TimePoint now);
  // Closes it when it has been silent for too long.
  void CheckTime(TimePoint now);
  // When CheckTime may have to act.
  TimePoint next_check() const;

 private:
  enum class Phase : uint8_t { kClosed, kConnecting, kHandshake, kGreeting, kReady };
  struct InFlight {
    Request* request;  // null: nobody waits for the answer any more
    const Wire* wire;  // valid until it is sent
    size_t replies_left;
    uint64_t bytes;
  };

  void Connected(TimePoint now);
  void Shake(TimePoint now);
  void Greet();
  void Greeted(TimePoint now);
  void GreetAsOldServer();
  void Receive(TimePoint now);
  bool Parse(ConstBuffer input, TimePoint now);
  bool Hear(const RespEvent& event, TimePoint now);
  bool BeginReply(const RespEvent& event);
  void EndReply(TimePoint now);
  size_t GatherUnsent(std::span<iovec> out) const;
  void MarkSent(size_t bytes);
  void Watch(bool writable);
  void Enqueue(Request& request);

  const RedisConfig& config_;
  TlsContext* const tls_;
  const int epoll_fd_;
  Owner& owner_;

  Phase phase_ = Phase::kClosed;
  uint64_t life_ = 0;  // counts Start and Close: tells a loop that its connection is another now
  std::string host_;
  int connecting_fd_ = -1;
  std::unique_ptr<Transport> transport_;
  bool watching_writable_ = false;
  bool write_blocked_ = false;
  bool write_needs_readable_ = false;  // of TLS
  bool read_needs_writable_ = false;   // of TLS
  TimePoint progress_at_{};            // the last time that bytes moved, or that there was no need
  TimePoint ready_since_{};
  ServerInfo info_;
  Request greeting_;
  enum class Greeting : uint8_t { kHello, kOldServer, kSelect } greeting_step_ = Greeting::kHello;

  std::deque<InFlight> in_flight_;
  size_t sent_ = 0;         // so many of in_flight_ are sent whole
  size_t sent_pieces_ = 0;  // and of the next one so many pieces
  size_t sent_offset_ = 0;  // and of the next piece so many bytes
  uint64_t bytes_in_flight_ = 0;
  uint64_t orphaned_bytes_ = 0;  // of those, nobody waits for
  bool in_transaction_ = false;

  std::optional<RespParser> parser_;
  RespValueBuilder builder_;
  bool in_reply_ = false;
  enum class Sink : uint8_t { kBuilder, kTarget, kNothing } sink_ = Sink::kBuilder;
  bool reply_is_push_ = false;
  std::array<std::byte, 16 << 10> buffer_;
};

}  // namespace embercache::redis
