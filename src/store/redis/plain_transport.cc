#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "src/store/redis/transport.h"

namespace embercache::redis {
namespace {

// A slow peer still shows that it is alive.
constexpr size_t kMostExpectedBytes = 128UL << 10;

IoResult FromReturn(ssize_t moved, IoResult::Wait wait, const char* what) {
  if (moved > 0) return {static_cast<size_t>(moved), IoResult::Wait::kNone, {}};
  if (moved == 0) return {0, IoResult::Wait::kNone, Status::Unavailable("the server hung up")};
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {0, wait, {}};
  return {0, IoResult::Wait::kNone, Status::Unavailable(Status::FromErrno(errno, what).message())};
}

class PlainTransport final : public Transport {
 public:
  explicit PlainTransport(int fd) : fd_(fd) {}
  ~PlainTransport() override { close(fd_); }
  PlainTransport(const PlainTransport&) = delete;
  PlainTransport& operator=(const PlainTransport&) = delete;

  int fd() const override { return fd_; }
  IoResult Handshake() override { return {}; }

  IoResult Read(std::span<const iovec> into) override {
    return FromReturn(readv(fd_, into.data(), static_cast<int>(into.size())),
                      IoResult::Wait::kReadable, "reading from the server");
  }

  void Expect(size_t bytes) override {
    const int least = static_cast<int>(std::clamp<size_t>(bytes, 1, kMostExpectedBytes));
    if (least == expected_ ||
        setsockopt(fd_, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof(least)) != 0) {
      return;
    }
    expected_ = least;
  }

  IoResult Write(std::span<const iovec> from) override {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(from.data());
    message.msg_iovlen = from.size();
    return FromReturn(sendmsg(fd_, &message, MSG_NOSIGNAL), IoResult::Wait::kWritable,
                      "writing to the server");
  }

 private:
  const int fd_;
  int expected_ = 1;  // SO_RCVLOWAT
};

}  // namespace

std::unique_ptr<Transport> MakePlainTransport(int fd) {
  return std::make_unique<PlainTransport>(fd);
}

}  // namespace embercache::redis
