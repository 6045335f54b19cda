#include "tests/unit/store_redis/fault_proxy.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

namespace embercache::redis {
namespace {

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// One direction of a connection. Holds at most what it has read and could not yet write.
struct Stream {
  int from;
  int to;
  int64_t forwarded = 0;
  std::vector<char> held;
  size_t written = 0;

  bool full() const { return written < held.size(); }
  // False when the sender is gone.
  bool Fill(size_t at_most) {
    held.resize(at_most);
    written = 0;
    const ssize_t received = recv(from, held.data(), at_most, MSG_DONTWAIT);
    held.resize(received > 0 ? static_cast<size_t>(received) : 0);
    return received > 0 || (received < 0 && (errno == EAGAIN || errno == EINTR));
  }
  // False when the receiver is gone or the limit is reached.
  bool Drain(int64_t limit, std::atomic<int>& cuts_left) {
    size_t bytes = held.size() - written;
    bool cut = false;
    if (limit >= 0 && forwarded + static_cast<int64_t>(bytes) >= limit && cuts_left > 0) {
      bytes = static_cast<size_t>(std::max<int64_t>(limit - forwarded, 0));
      cut = true;
    }
    const ssize_t sent =
        bytes == 0 ? 0 : send(to, held.data() + written, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    written += static_cast<size_t>(sent);
    forwarded += sent;
    if (cut && static_cast<size_t>(sent) == bytes) {
      --cuts_left;
      return false;
    }
    return true;
  }
};

}  // namespace

FaultProxy::FaultProxy(uint16_t server_port) : server_port_(server_port) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t length = sizeof(address);
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener_, where, length) != 0 || listen(listener_, 64) != 0 ||
      getsockname(listener_, where, &length) != 0) {
    std::abort();
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

FaultProxy::~FaultProxy() {
  stop_ = true;
  acceptor_.join();
  for (std::thread& thread : threads_) thread.join();
  close(listener_);
}

void FaultProxy::Accept() {
  while (!stop_) {
    pollfd waiting{listener_, POLLIN, 0};
    if (poll(&waiting, 1, 20) <= 0) continue;
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    ++connections_;
    if (refuse) {
      close(client);
    } else {
      threads_.emplace_back([this, client] { Serve(client); });
    }
  }
}

void FaultProxy::Serve(int client) {
  const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(server_port_);
  const int on = 1;
  setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  Stream requests{client, server, 0, {}, 0}, replies{server, client, 0, {}, 0};
  bool open = connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  while (open && !stop_) {
    const bool swallow = swallow_replies;
    const auto events = [&](const Stream& in, const Stream& out) {
      return static_cast<short>((in.full() ? 0 : POLLIN) | (out.full() ? POLLOUT : 0));
    };
    pollfd sides[] = {{client, events(requests, replies), 0},
                      {server, events(replies, requests), 0}};
    if (swallow) {
      sides[0].events &= ~POLLOUT;
      if (replies.full()) sides[1].events &= ~POLLIN;
    }
    poll(sides, 2, 20);
    for (Stream* const stream : {&requests, &replies}) {
      const bool is_reply = stream == &replies;
      int64_t piece = is_reply ? reply_piece.load() : 1 << 16;
      const int64_t rate = bytes_per_second;
      if (rate > 0) piece = std::min<int64_t>(piece, std::max<int64_t>(rate / 100, 1));
      const pollfd& source = sides[is_reply ? 1 : 0];
      if (!stream->full() && (source.revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
        open = open && stream->Fill(static_cast<size_t>(piece));
      }
      if (!stream->full() || (is_reply && swallow)) continue;
      const int64_t before = stream->forwarded;
      open = open && stream->Drain(is_reply ? cut_replies_after : cut_requests_after, cuts_left);
      if (!is_reply) request_bytes_ += stream->forwarded - before;
      if (rate > 0) std::this_thread::sleep_for(std::chrono::microseconds(piece * 1000000 / rate));
    }
  }
  if (reset) {
    const linger now{1, 0};
    setsockopt(client, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  }
  close(client);
  close(server);
}

}  // namespace embercache::redis
