#include "src/store/mooncake/channel.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace embercache::mooncake {
namespace {

// An answer that claims more is none.
constexpr uint32_t kMaxAnswer = 1U << 20;

Status WaitFor(int fd, short events, TimePoint deadline) {
  const auto left = deadline - SteadyClock().Now();
  const int64_t left_ms =
      std::clamp<int64_t>(std::chrono::ceil<std::chrono::milliseconds>(left).count(), 0, 1 << 30);
  pollfd poll_fd = {fd, events, 0};
  const int ready = poll(&poll_fd, 1, static_cast<int>(left_ms));
  if (ready > 0 || (ready < 0 && errno == EINTR)) return Status::Ok();
  if (ready < 0) return Status::FromErrno(errno, "mooncake: poll");
  return Status::DeadlineExceeded("the bridge does not answer");
}

Status Gone(int error) {
  return Status::Unavailable(
      error == 0 ? "the bridge has ended"
                 : fmt::format("the bridge's socket failed: {}", std::strerror(error)));
}

bool MayRetry(int error) {
  return error == EAGAIN || error == EINTR;
}

}  // namespace

Status Channel::Send(std::span<const std::byte> bytes, int pass_fd, TimePoint deadline) {
  while (!bytes.empty()) {
    iovec part = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (pass_fd >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* const header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &pass_fd, sizeof(int));
    }
    const ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<size_t>(sent));
      pass_fd = -1;
    } else if (MayRetry(errno)) {
      EMBERCACHE_RETURN_IF_ERROR(WaitFor(socket_.get(), POLLOUT, deadline));
    } else {
      return Gone(errno);
    }
  }
  return Status::Ok();
}

Status Channel::Receive(std::span<std::byte> bytes, TimePoint deadline) {
  while (!bytes.empty()) {
    EMBERCACHE_RETURN_IF_ERROR(WaitFor(socket_.get(), POLLIN, deadline));
    const ssize_t got = recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<size_t>(got));
    } else if (got == 0 || !MayRetry(errno)) {
      return Gone(got == 0 ? 0 : errno);
    }
  }
  return Status::Ok();
}

Result<Answer> Channel::Ask(Op op, uint32_t count, std::span<const std::byte> body, int pass_fd,
                            TimePoint deadline) {
  const RequestHead head = {static_cast<uint32_t>(op), count, static_cast<uint32_t>(body.size())};
  // In one piece: two would wake the bridge twice.
  const auto front = std::as_bytes(std::span(&head, 1));
  std::vector<std::byte> request(front.begin(), front.end());
  request.insert(request.end(), body.begin(), body.end());
  EMBERCACHE_RETURN_IF_ERROR(Send(request, pass_fd, deadline));
  AnswerHead answer_head;
  EMBERCACHE_RETURN_IF_ERROR(Receive(std::as_writable_bytes(std::span(&answer_head, 1)), deadline));
  const auto [kind, size] = answer_head;
  if (kind > static_cast<uint32_t>(AnswerKind::kAbsent) || size > kMaxAnswer) {
    return Status::Internal(fmt::format("the bridge answers {} of kind {}", size, kind));
  }
  Answer answer;
  if (static_cast<AnswerKind>(kind) == AnswerKind::kNumbers) {
    answer.numbers.resize(size);
    EMBERCACHE_RETURN_IF_ERROR(
        Receive(std::as_writable_bytes(std::span(answer.numbers)), deadline));
    return answer;
  }
  answer.text.resize(size);
  EMBERCACHE_RETURN_IF_ERROR(Receive(std::as_writable_bytes(std::span(answer.text)), deadline));
  switch (static_cast<AnswerKind>(kind)) {
    case AnswerKind::kAbsent:
      return Status::NotFound(std::move(answer.text));
    case AnswerKind::kError:
      return Status::Internal(std::move(answer.text));
    default:
      return answer;
  }
}

}  // namespace embercache::mooncake
