// TLS over a socket of ours: OpenSSL reads and writes through a BIO that never raises SIGPIPE.

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "src/store/redis/transport.h"

namespace embercache::redis {
namespace {

struct SslDeleter {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};

// The oldest entry of this thread's error queue, for people.
std::string OpenSslError() {
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  const char* reason = error ? ERR_reason_error_string(error) : nullptr;
  return reason ? reason : "no reason given";
}

int SocketOf(BIO* bio) {
  return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
}

int BioWrite(BIO* bio, const char* data, size_t bytes, size_t* written) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent = send(SocketOf(bio), data, bytes, MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  *written = sent > 0 ? static_cast<size_t>(sent) : 0;
  return sent > 0;
}

int BioRead(BIO* bio, char* data, size_t bytes, size_t* read) {
  BIO_clear_retry_flags(bio);
  const ssize_t received = recv(SocketOf(bio), data, bytes, 0);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  *read = received > 0 ? static_cast<size_t>(received) : 0;
  return received > 0;
}

long BioControl(BIO* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

// Never freed: OpenSSL's own clean-up at exit may still use it.
BIO_METHOD* SocketMethod() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    BIO_meth_set_write_ex(made, BioWrite);
    BIO_meth_set_read_ex(made, BioRead);
    BIO_meth_set_ctrl(made, BioControl);
    return made;
  }();
  return method;
}

class TlsTransport final : public Transport {
 public:
  TlsTransport(int fd, std::unique_ptr<SSL, SslDeleter> ssl) : fd_(fd), ssl_(std::move(ssl)) {}
  ~TlsTransport() override { close(fd_); }
  TlsTransport(const TlsTransport&) = delete;
  TlsTransport& operator=(const TlsTransport&) = delete;

  int fd() const override { return fd_; }

  IoResult Handshake() override {
    ERR_clear_error();
    const int done = SSL_connect(ssl_.get());
    return done == 1 ? IoResult{} : Failed(done);
  }

  IoResult Read(std::span<const iovec> into) override {
    return Each(into, [&](const iovec& piece, size_t* moved) {
      return SSL_read_ex(ssl_.get(), piece.iov_base, piece.iov_len, moved);
    });
  }

  IoResult Write(std::span<const iovec> from) override {
    return Each(from, [&](const iovec& piece, size_t* moved) {
      const int done = SSL_write_ex(ssl_.get(), piece.iov_base, piece.iov_len, moved);
      write_begun_ = done != 1;  // a record was made of these bytes, and is not yet sent
      return done;
    });
  }

  bool write_begun() const override { return write_begun_; }

 private:
  template <typename Move>
  IoResult Each(std::span<const iovec> pieces, Move move) {
    size_t total = 0;
    for (iovec piece : pieces) {
      while (piece.iov_len > 0) {
        size_t moved = 0;
        ERR_clear_error();
        const int done = move(piece, &moved);
        if (done != 1) return total > 0 ? IoResult{total, IoResult::Wait::kNone, {}} : Failed(done);
        total += moved;
        piece.iov_base = static_cast<char*>(piece.iov_base) + moved;
        piece.iov_len -= moved;
      }
    }
    return {total, IoResult::Wait::kNone, {}};
  }

  IoResult Failed(int done) {
    const int error = SSL_get_error(ssl_.get(), done);
    if (error == SSL_ERROR_WANT_READ) return {0, IoResult::Wait::kReadable, {}};
    if (error == SSL_ERROR_WANT_WRITE) return {0, IoResult::Wait::kWritable, {}};
    if (error == SSL_ERROR_ZERO_RETURN || error == SSL_ERROR_SYSCALL) {
      return {0, IoResult::Wait::kNone, Status::Unavailable("the server hung up")};
    }
    const long verified = SSL_get_verify_result(ssl_.get());
    const std::string why =
        verified == X509_V_OK ? OpenSslError() : X509_verify_cert_error_string(verified);
    return {0, IoResult::Wait::kNone, Status::Unavailable("TLS: " + why)};
  }

  const int fd_;
  const std::unique_ptr<SSL, SslDeleter> ssl_;
  bool write_begun_ = false;
};

class OpenSslContext final : public TlsContext {
 public:
  Status Load(const RedisConfig& config) {
    context_.reset(SSL_CTX_new(TLS_client_method()));
    SSL_CTX* const context = context_.get();
    if (context == nullptr) return Status::Internal("TLS: " + OpenSslError());
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  SSL_MODE_AUTO_RETRY);
    const std::string& authorities = config.tls_ca_file;
    if (authorities.empty()) {
      SSL_CTX_set_default_verify_paths(context);
    } else if (SSL_CTX_load_verify_locations(context, authorities.c_str(), nullptr) != 1) {
      return Unusable("ca_file", authorities);
    }
    if (config.tls_cert_file.empty()) return Status::Ok();
    if (SSL_CTX_use_certificate_chain_file(context, config.tls_cert_file.c_str()) != 1) {
      return Unusable("cert_file", config.tls_cert_file);
    }
    if (SSL_CTX_use_PrivateKey_file(context, config.tls_key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
      return Unusable("key_file", config.tls_key_file);
    }
    return Status::Ok();
  }

  Result<std::unique_ptr<Transport>> Wrap(int fd, const std::string& host) override {
    std::unique_ptr<SSL, SslDeleter> ssl(SSL_new(context_.get()));
    BIO* const bio = ssl ? BIO_new(SocketMethod()) : nullptr;
    if (bio == nullptr || !Expect(ssl.get(), host)) {
      BIO_free(bio);
      close(fd);
      return Status::Internal("TLS: " + OpenSslError());
    }
    BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(fd)));
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl.get(), bio, bio);
    return std::unique_ptr<Transport>(std::make_unique<TlsTransport>(fd, std::move(ssl)));
  }

 private:
  static Status Unusable(std::string_view option, const std::string& path) {
    return Status::Invalid(fmt::format("redis: {} '{}': {}", option, path, OpenSslError()));
  }

  // The name or address that the certificate has to carry.
  static bool Expect(SSL* ssl, const std::string& host) {
    in6_addr address;
    const bool numeric = inet_pton(AF_INET, host.c_str(), &address) == 1 ||
                         inet_pton(AF_INET6, host.c_str(), &address) == 1;
    if (numeric) return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str()) == 1;
    return SSL_set1_host(ssl, host.c_str()) == 1 &&
           SSL_set_tlsext_host_name(ssl, host.c_str()) == 1;
  }

  std::unique_ptr<SSL_CTX, SslDeleter> context_;
};

}  // namespace

Result<std::shared_ptr<TlsContext>> TlsContext::Create(const RedisConfig& config) {
  auto context = std::make_shared<OpenSslContext>();
  EMBERCACHE_RETURN_IF_ERROR(context->Load(config));
  return std::shared_ptr<TlsContext>(std::move(context));
}

}  // namespace embercache::redis
