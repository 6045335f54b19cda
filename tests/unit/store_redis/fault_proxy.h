#pragma once

// A proxy on loopback between the backend and its server that breaks things: cuts, resets, delays,
// slows down, swallows.

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace embercache::redis {

class FaultProxy {
 public:
  // Forwards to that port of 127.0.0.1.
  explicit FaultProxy(uint16_t server_port);
  ~FaultProxy();
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;

  std::string url() const { return "redis://127.0.0.1:" + std::to_string(port_); }
  int connections() const { return connections_; }
  // Bytes that went to the server, over all connections.
  int64_t request_bytes() const { return request_bytes_; }

  // All may be changed at any time. Byte counts are of one connection; -1: no limit.
  std::atomic<int64_t> cut_replies_after{-1};   // close once so many bytes went to the client
  std::atomic<int64_t> cut_requests_after{-1};  // close once so many bytes went to the server
  std::atomic<int> cuts_left{1 << 30};          // connections that may still be cut
  std::atomic<bool> reset{false};               // cut by RST instead of FIN
  std::atomic<bool> swallow_replies{false};     // keep what the server says back
  std::atomic<bool> refuse{false};              // close new connections at once
  std::atomic<int64_t> bytes_per_second{0};     // 0: as fast as it goes
  std::atomic<int64_t> reply_piece{1 << 16};    // forward replies in pieces of so many bytes

 private:
  void Accept();
  void Serve(int client);

  const uint16_t server_port_;
  uint16_t port_ = 0;
  int listener_ = -1;
  std::atomic<bool> stop_{false};
  std::atomic<int> connections_{0};
  std::atomic<int64_t> request_bytes_{0};
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace embercache::redis
