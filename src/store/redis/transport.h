#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "embercache/status.h"
#include "src/store/redis/redis_config.h"

namespace embercache::redis {

// What a read or a write did. With no bytes moved and an OK status, nothing moves until the socket
// is as `wait` says.
struct IoResult {
  enum class Wait : uint8_t { kNone, kReadable, kWritable };
  size_t bytes = 0;
  Wait wait = Wait::kNone;
  Status status;  // Unavailable when the peer is gone or the stream broken
};

// The bytes of one connected, non-blocking socket, plain or encrypted. Owns the socket. Not
// thread-safe. No call blocks or raises SIGPIPE.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int fd() const = 0;
  // Call until it returns OK without a wait; then the stream may be used.
  virtual IoResult Handshake() = 0;
  // As readv and writev, of at least one byte.
  virtual IoResult Read(std::span<const iovec> into) = 0;
  virtual IoResult Write(std::span<const iovec> from) = 0;
  // At least so many bytes are sure to come: the socket need not become readable before. A hint.
  virtual void Expect(size_t /*bytes*/) {}
  // Bytes beyond those that Write reported are on their way: the next Write has to begin with the
  // same ones.
  virtual bool write_begun() const { return false; }
};

// What is the same for all encrypted connections of a store: authorities and the own certificate.
class TlsContext {
 public:
  // Invalid names the file that cannot be used.
  static Result<std::shared_ptr<TlsContext>> Create(const RedisConfig& config);
  virtual ~TlsContext() = default;
  // Takes the socket; the peer has to prove that it is `host`.
  virtual Result<std::unique_ptr<Transport>> Wrap(int fd, const std::string& host) = 0;
};

// Takes the socket.
std::unique_ptr<Transport> MakePlainTransport(int fd);

}  // namespace embercache::redis
