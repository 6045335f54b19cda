#include "src/store/mooncake/bridge_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace embercache::mooncake {
namespace {

bool ReadAll(int fd, void* to, size_t bytes) {
  auto* at = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const ssize_t got = recv(fd, at, bytes, MSG_WAITALL);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool WriteAll(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  return true;
}

// Head and descriptor; the latter is -1 where none came.
bool ReadControlHead(int fd, RequestHead* head, int* passed) {
  *passed = -1;
  iovec part = {head, sizeof *head};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got = 0;
  do {
    got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return false;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    std::memcpy(passed, CMSG_DATA(header), sizeof(int));
  }
  const auto had = static_cast<size_t>(got);
  return ReadAll(fd, reinterpret_cast<std::byte*>(head) + had, sizeof *head - had);
}

bool Send(int fd, AnswerKind kind, size_t size, std::span<const std::byte> bytes) {
  const AnswerHead head = {static_cast<uint32_t>(kind), static_cast<uint32_t>(size)};
  const auto front = std::as_bytes(std::span(&head, 1));
  std::vector<std::byte> answer;
  answer.reserve(front.size() + bytes.size());
  answer.insert(answer.end(), front.begin(), front.end());
  answer.insert(answer.end(), bytes.begin(), bytes.end());
  return WriteAll(fd, answer);
}

bool SendText(int fd, AnswerKind kind, const std::string& text) {
  return Send(fd, kind, text.size(), std::as_bytes(std::span(text)));
}

bool SendNumbers(int fd, const Result<std::vector<int64_t>>& numbers) {
  if (!numbers.ok()) return SendText(fd, AnswerKind::kError, numbers.status().message());
  return Send(fd, AnswerKind::kNumbers, numbers->size(), std::as_bytes(std::span(*numbers)));
}

std::optional<uint64_t> NumberIn(const std::vector<std::byte>& body) {
  uint64_t number = 0;
  if (body.size() != sizeof number) return std::nullopt;
  std::memcpy(&number, body.data(), sizeof number);
  return number;
}

// Reads a request's body from its front.
class Body {
 public:
  explicit Body(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <typename Number>
  bool Take(size_t count, std::vector<Number>* numbers) {
    if (count > rest_.size() / sizeof(Number)) return false;
    numbers->resize(count);
    if (count > 0) std::memcpy(numbers->data(), rest_.data(), count * sizeof(Number));
    rest_ = rest_.subspan(count * sizeof(Number));
    return true;
  }
  bool TakeText(size_t bytes, std::string* text) {
    if (bytes > rest_.size()) return false;
    text->assign(reinterpret_cast<const char*>(rest_.data()), bytes);
    rest_ = rest_.subspan(bytes);
    return true;
  }

 private:
  std::span<const std::byte> rest_;
};

// Lengths of the keys, numbers of parts, addresses, sizes, keys. An object has one part at most:
// the C ABI cannot gather.
bool Decode(size_t count, std::span<const std::byte> bytes, std::vector<ClientObject>* objects) {
  Body body(bytes);
  std::vector<uint32_t> lengths;
  std::vector<uint32_t> counts;
  if (!body.Take(count, &lengths) || !body.Take(count, &counts)) return false;
  size_t parts = 0;
  for (const uint32_t n : counts) {
    if (n > 1) return false;
    parts += n;
  }
  std::vector<uint64_t> addresses;
  std::vector<uint64_t> sizes;
  if (!body.Take(parts, &addresses) || !body.Take(parts, &sizes)) return false;
  size_t part = 0;
  for (size_t i = 0; i < count; ++i) {
    ClientObject& object = objects->emplace_back();
    if (!body.TakeText(lengths[i], &object.key)) return false;
    if (counts[i] == 0) continue;
    object.memory = reinterpret_cast<std::byte*>(addresses[part]);
    object.bytes = sizes[part++];
  }
  return true;
}

}  // namespace

void BridgeServer::Serve(int fd) {
  RequestHead head;
  while (ReadAll(fd, &head, sizeof head)) {
    std::vector<std::byte> body(head.bytes);
    if (!ReadAll(fd, body.data(), body.size())) return;
    std::vector<ClientObject> objects;
    const bool readable = Decode(head.keys, body, &objects);
    const auto answer = readable ? client_.Run(static_cast<Op>(head.op), objects)
                                 : Status::Internal("the request cannot be read");
    if (!SendNumbers(fd, answer)) return;
  }
}

Result<std::vector<int64_t>> BridgeServer::OpenChannel(int fd) {
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return Status::FromErrno(errno, "a channel's socket");
  channels_.push_back({own, std::thread([this, own] { Serve(own); })});
  return std::vector<int64_t>{0};
}

Result<std::vector<int64_t>> BridgeServer::Map(const std::vector<std::byte>& body, int fd) {
  const auto bytes = NumberIn(body);
  if (!bytes) return Status::Internal("memory without a size");
  void* const memory = mmap(nullptr, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return Status::FromErrno(errno, "mmap");
  const int code = client_.Register(memory, *bytes);
  const auto address = reinterpret_cast<uint64_t>(memory);
  if (code == 0) {
    mappings_[address] = {memory, *bytes};
  } else {
    munmap(memory, *bytes);
  }
  return std::vector<int64_t>{code, static_cast<int64_t>(address)};
}

Result<std::vector<int64_t>> BridgeServer::Unmap(const std::vector<std::byte>& body) {
  const auto address = NumberIn(body);
  const auto found = address ? mappings_.find(*address) : mappings_.end();
  if (found == mappings_.end()) return Status::Internal("memory that is not mapped");
  const int code = client_.Unregister(found->second.memory);
  munmap(found->second.memory, found->second.bytes);
  mappings_.erase(found);
  return std::vector<int64_t>{code};
}

bool BridgeServer::ControlRequest(const RequestHead& head, const std::vector<std::byte>& body,
                                  int fd) {
  const Op op = static_cast<Op>(head.op);
  if (op == Op::kSetUp) {
    const auto library = client_.SetUp({reinterpret_cast<const char*>(body.data()), body.size()});
    if (library.ok()) return SendText(control_fd_, AnswerKind::kText, *library);
    const bool absent = library.status().code() == StatusCode::kNotFound;
    return SendText(control_fd_, absent ? AnswerKind::kAbsent : AnswerKind::kError,
                    library.status().message());
  }
  Result<std::vector<int64_t>> answer =
      Status::Internal("there is no client: set-up has not succeeded");
  if (client_.ready() && op == Op::kMap) answer = Map(body, fd);
  if (client_.ready() && op == Op::kUnmap) answer = Unmap(body);
  if (client_.ready() && op == Op::kChannel) answer = OpenChannel(fd);
  return SendNumbers(control_fd_, answer);
}

void BridgeServer::Run() {
  while (true) {
    RequestHead head;
    int fd = -1;
    if (!ReadControlHead(control_fd_, &head, &fd)) return;
    std::vector<std::byte> body(head.bytes);
    const bool served =
        ReadAll(control_fd_, body.data(), body.size()) && ControlRequest(head, body, fd);
    if (fd >= 0) close(fd);
    if (!served) return;
  }
}

void BridgeServer::End() {
  for (Channel& channel : channels_) shutdown(channel.fd, SHUT_RDWR);
  for (Channel& channel : channels_) {
    channel.thread.join();
    close(channel.fd);
  }
  channels_.clear();
  client_.End();
  for (const auto& [address, mapping] : mappings_) munmap(mapping.memory, mapping.bytes);
  mappings_.clear();
}

}  // namespace embercache::mooncake
