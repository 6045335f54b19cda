#include "src/store/redis/connection.h"

// Invariants: replies belong to in_flight_.front(), which has been sent whole; the parser's
// destination is memory of that entry's request, of the builder, or none; in_flight_[sent_] is the
// only entry of which a part has been sent.

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace embercache::redis {
namespace {

constexpr Duration kConnectTimeout = std::chrono::seconds(3);
// Silence while an answer is due. Shorter once a caller has given up on one.
constexpr Duration kStallTimeout = std::chrono::seconds(10);
constexpr Duration kOrphanStallTimeout = std::chrono::seconds(2);
// Answers that nobody waits for are read and dropped up to here; beyond, a new connection is
// cheaper.
constexpr uint64_t kMaxOrphanedBytes = (1 << 20) + (64 << 10);
constexpr uint64_t kMaxBulkBytes = 8 << 20;
constexpr uint64_t kMaxValueBytes = 4 << 20;
constexpr size_t kMaxPieces = 256;
// Bytes of one turn, so that one connection does not starve the others.
constexpr size_t kTurnBytes = 4 << 20;

void SetOptions(int fd, int family) {
  if (family == AF_UNIX) return;
  const int on = 1, idle_s = 30, interval_s = 10, probes = 3;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

uint64_t CostOf(const Request& request) {
  return request.current_wire().bytes + request.reply_bytes;
}

}  // namespace

Connection::Connection(const RedisConfig& config, TlsContext* tls, int epoll_fd, Owner& owner)
    : config_(config), tls_(tls), epoll_fd_(epoll_fd), owner_(owner), builder_(kMaxValueBytes) {}

Connection::~Connection() {
  if (connecting_fd_ >= 0) close(connecting_fd_);
}

Status Connection::Start(const SocketAddress& address, const std::string& host, TimePoint now) {
  const int family = address.storage.ss_family;
  const int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return Status::FromErrno(errno, "socket");
  SetOptions(fd, family);
  const auto* const where = reinterpret_cast<const sockaddr*>(&address.storage);
  if (connect(fd, where, address.length) != 0 && errno != EINPROGRESS) {
    const int error = errno;
    close(fd);
    return Status::FromErrno(error, "connect");
  }
  epoll_event event{.events = EPOLLIN | EPOLLOUT, .data = {.ptr = this}};
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
    const int error = errno;
    close(fd);
    return Status::FromErrno(error, "epoll_ctl");
  }
  ++life_;
  connecting_fd_ = fd;
  host_ = host;
  watching_writable_ = true;
  phase_ = Phase::kConnecting;
  progress_at_ = now;
  info_ = {};
  parser_.emplace(kMaxBulkBytes);
  (void)builder_.Take();
  in_reply_ = false;
  return Status::Ok();
}

void Connection::Close(const Status& why) {
  if (phase_ == Phase::kClosed) return;
  ++life_;
  const bool was_ready = ready();
  phase_ = Phase::kClosed;
  transport_.reset();
  if (connecting_fd_ >= 0) close(std::exchange(connecting_fd_, -1));
  parser_.reset();
  write_blocked_ = write_needs_readable_ = read_needs_writable_ = false;
  std::vector<Request*> unanswered;
  for (size_t i = 0; i < in_flight_.size(); ++i) {
    Request* const request = in_flight_[i].request;
    if (request == nullptr || request == &greeting_) continue;
    const bool begun = i < sent_ || (i == sent_ && sent_pieces_ + sent_offset_ > 0);
    const bool changes = request->lane != Lane::kTransaction || request->notes.in_second_step;
    request->uncertain |= begun && changes;
    request->notes.connection = nullptr;
    unanswered.push_back(request);
  }
  in_flight_.clear();
  sent_ = sent_pieces_ = sent_offset_ = 0;
  bytes_in_flight_ = orphaned_bytes_ = 0;
  in_transaction_ = false;
  owner_.OnClosed(*this, was_ready, why, unanswered);
}

bool Connection::HasRoomFor(const Request& request) const {
  return bytes_in_flight_ == 0 || bytes_in_flight_ + CostOf(request) <= kMaxBytesInFlight;
}

void Connection::Submit(Request& request, TimePoint now) {
  if (in_flight_.empty()) progress_at_ = now;
  if (request.lane == Lane::kTransaction) in_transaction_ = !request.notes.in_second_step;
  Enqueue(request);
}

void Connection::Enqueue(Request& request) {
  const Wire& wire = request.current_wire();
  request.notes.connection = this;
  request.replies.clear();
  if (request.target) {
    request.target->present = false;
    request.target->received_bytes = 0;
  }
  const uint64_t bytes = CostOf(request);
  in_flight_.push_back({&request, &wire, wire.commands, bytes});
  bytes_in_flight_ += bytes;
}

void Connection::Abandon(Request& request, TimePoint now) {
  request.notes.connection = nullptr;
  const auto entry = std::find_if(in_flight_.begin(), in_flight_.end(),
                                  [&](const InFlight& e) { return e.request == &request; });
  if (entry == in_flight_.end()) return;
  if (request.lane == Lane::kTransaction && !request.notes.in_second_step) in_transaction_ = false;
  const auto index = static_cast<size_t>(entry - in_flight_.begin());
  entry->request = nullptr;
  if (index > sent_ ||
      (index == sent_ && sent_pieces_ + sent_offset_ == 0 && !transport_->write_begun())) {
    bytes_in_flight_ -= entry->bytes;
    in_flight_.erase(entry);
    return;
  }
  if (index == sent_) {
    Close(Status::DeadlineExceeded("a request was given up half sent"));
    return;
  }
  if (index == 0 && in_reply_ && !reply_is_push_) {
    parser_->DropDestination();
    if (sink_ == Sink::kTarget) sink_ = Sink::kNothing;
  }
  orphaned_bytes_ += entry->bytes;
  if (orphaned_bytes_ > kMaxOrphanedBytes || now - progress_at_ > kOrphanStallTimeout) {
    Close(Status::DeadlineExceeded("the server is too slow"));
  }
}

void Connection::Handle(uint32_t events, TimePoint now) {
  if (phase_ == Phase::kConnecting) {
    Connected(now);
  } else if (phase_ == Phase::kHandshake) {
    Shake(now);
  } else if (phase_ != Phase::kClosed) {
    const uint64_t life = life_;
    write_blocked_ = false;
    if (events & ~static_cast<uint32_t>(EPOLLOUT) || read_needs_writable_) Receive(now);
    if (life == life_) Flush(now);
  }
}

void Connection::Connected(TimePoint now) {
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(connecting_fd_, SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) {
    Close(Status::Unavailable(Status::FromErrno(error, "connect").message()));
    return;
  }
  const int fd = std::exchange(connecting_fd_, -1);
  if (tls_ == nullptr) {
    transport_ = MakePlainTransport(fd);
  } else {
    auto wrapped = tls_->Wrap(fd, host_);
    if (!wrapped.ok()) {
      Close(wrapped.status());
      return;
    }
    transport_ = std::move(*wrapped);
  }
  phase_ = Phase::kHandshake;
  Shake(now);
}

void Connection::Shake(TimePoint now) {
  const IoResult result = transport_->Handshake();
  if (!result.status.ok()) {
    Close(result.status);
    return;
  }
  Watch(result.wait == IoResult::Wait::kWritable);
  if (result.wait != IoResult::Wait::kNone) return;
  phase_ = Phase::kGreeting;
  Greet();
  Flush(now);
}

void Connection::Flush(TimePoint now) {
  if (phase_ < Phase::kGreeting || write_blocked_) return;
  std::array<iovec, kMaxPieces> pieces;
  size_t turn_bytes = 0;
  while (sent_ < in_flight_.size() && turn_bytes < kTurnBytes) {
    const size_t count = GatherUnsent(pieces);
    const IoResult result = transport_->Write(std::span(pieces).first(count));
    if (!result.status.ok()) {
      Close(result.status);
      return;
    }
    if (result.bytes > 0) progress_at_ = now;
    MarkSent(result.bytes);
    turn_bytes += result.bytes;
    write_blocked_ = result.wait != IoResult::Wait::kNone;
    write_needs_readable_ = result.wait == IoResult::Wait::kReadable;
    if (write_blocked_) break;
  }
  // Also where the turn is over: the socket is writable, so epoll comes back at once.
  Watch(sent_ < in_flight_.size() && !write_needs_readable_);
}

size_t Connection::GatherUnsent(std::span<iovec> out) const {
  size_t count = 0;
  size_t piece = sent_pieces_;
  size_t offset = sent_offset_;
  for (size_t i = sent_; i < in_flight_.size() && count < out.size(); ++i) {
    const std::vector<ConstBuffer>& pieces = in_flight_[i].wire->pieces;
    for (; piece < pieces.size() && count < out.size(); ++piece) {
      const ConstBuffer rest = pieces[piece].subspan(offset);
      out[count++] = {const_cast<std::byte*>(rest.data()), rest.size()};
      offset = 0;
    }
    piece = 0;
  }
  return count;
}

void Connection::MarkSent(size_t bytes) {
  while (sent_ < in_flight_.size()) {
    const std::vector<ConstBuffer>& pieces = in_flight_[sent_].wire->pieces;
    const size_t rest = pieces[sent_pieces_].size() - sent_offset_;
    if (bytes < rest) {
      sent_offset_ += bytes;
      return;
    }
    bytes -= rest;
    sent_offset_ = 0;
    if (++sent_pieces_ < pieces.size()) continue;
    sent_pieces_ = 0;
    in_flight_[sent_++].wire = nullptr;
  }
}

void Connection::Receive(TimePoint now) {
  const uint64_t life = life_;
  for (size_t turn_bytes = 0; turn_bytes < kTurnBytes;) {
    std::array<iovec, 64> space;
    size_t places = parser_->DirectSpace(std::span(space).first(space.size() - 1));
    size_t direct_room = 0;
    for (size_t i = 0; i < places; ++i) direct_room += space[i].iov_len;
    if (places < space.size() - 1) space[places++] = {buffer_.data(), buffer_.size()};
    const IoResult result = transport_->Read(std::span(space).first(places));
    if (!result.status.ok()) {
      Close(result.status);
      return;
    }
    read_needs_writable_ = result.wait == IoResult::Wait::kWritable;
    if (result.bytes == 0) {
      if (read_needs_writable_) Watch(true);
      return;
    }
    progress_at_ = now;
    turn_bytes += result.bytes;
    const size_t direct = std::min(result.bytes, direct_room);
    if (direct > 0) parser_->DirectFilled(direct);
    if (!Parse(ConstBuffer(buffer_).first(result.bytes - direct), now) || life != life_) return;
    size_t room = 0;
    for (size_t i = 0; i < places; ++i) room += space[i].iov_len;
    if (result.bytes < room) break;  // that was all there is
  }
  // Each wake-up costs both sides, so it should be worth one.
  transport_->Expect(parser_->payload_left());
}

bool Connection::Parse(ConstBuffer input, TimePoint now) {
  const uint64_t life = life_;
  for (;;) {
    const RespEvent event = parser_->Next(input);
    if (event.kind == RespEvent::Kind::kNeedMore) return true;
    if (event.kind == RespEvent::Kind::kBroken) {
      Close(Status::Unavailable("the server does not speak RESP: " + parser_->error()));
      return false;
    }
    if (!Hear(event, now) || life != life_) return false;
  }
}

// False when it closed the connection.
bool Connection::Hear(const RespEvent& event, TimePoint now) {
  if (!in_reply_ && !BeginReply(event)) return false;
  if (sink_ == Sink::kBuilder && !builder_.Add(event, *parser_)) {
    Close(
        Status::Unavailable(fmt::format("a reply of more than {} bytes of text", kMaxValueBytes)));
    return false;
  }
  if (event.ends_reply) EndReply(now);
  return true;
}

bool Connection::BeginReply(const RespEvent& event) {
  in_reply_ = true;
  sink_ = Sink::kBuilder;
  reply_is_push_ = event.type == RespType::kPush;
  if (reply_is_push_) return true;
  if (sent_ == 0) {
    Close(Status::Unavailable(event.type == RespType::kError
                                  ? "the server says " + std::string(event.text)
                                  : std::string("an answer to nothing that was asked")));
    return false;
  }
  Request* const request = in_flight_.front().request;
  if (request == nullptr) {
    sink_ = Sink::kNothing;
  } else if (request->target && event.kind == RespEvent::Kind::kBulkBegin &&
             event.type == RespType::kBulk) {
    BulkTarget& target = *request->target;
    uint64_t exact = 0;
    for (const MutableBuffer& buffer : target.buffers) exact += buffer.size();
    target.present = true;
    target.received_bytes = event.count;
    const std::span<const MutableBuffer> buffers(target.buffers);
    parser_->SetDestination(event.count == exact ? buffers : buffers.first(1));
    sink_ = Sink::kTarget;
  }
  return true;
}

void Connection::EndReply(TimePoint now) {
  in_reply_ = false;
  if (reply_is_push_) {
    (void)builder_.Take();
    return;
  }
  InFlight& entry = in_flight_.front();
  if (entry.request != nullptr) {
    RespValue reply = builder_.Take();
    if (sink_ == Sink::kTarget) reply.type = RespType::kBulk;
    entry.request->replies.push_back(std::move(reply));
  } else {
    (void)builder_.Take();
  }
  if (--entry.replies_left > 0) return;
  Request* const request = entry.request;
  bytes_in_flight_ -= entry.bytes;
  if (request == nullptr) orphaned_bytes_ -= entry.bytes;
  in_flight_.pop_front();
  --sent_;
  if (request == &greeting_) {
    Greeted(now);
  } else if (request != nullptr) {
    request->notes.connection = nullptr;
    // The owner submits a second step, or there is none.
    if (request->lane == Lane::kTransaction) in_transaction_ = false;
    owner_.OnReplied(*this, *request);
  }
}

void Connection::CheckTime(TimePoint now) {
  if (phase_ == Phase::kClosed || now < next_check()) return;
  if (phase_ != Phase::kReady) {
    const char* const missing = phase_ == Phase::kConnecting  ? "connection"
                                : phase_ == Phase::kHandshake ? "TLS handshake"
                                                              : "answer to HELLO";
    Close(Status::Unavailable(
        fmt::format("no {} within {} s", missing, kConnectTimeout / std::chrono::seconds(1))));
  } else {
    Close(Status::Unavailable(fmt::format("the server has been silent for {} s",
                                          (now - progress_at_) / std::chrono::seconds(1))));
  }
}

TimePoint Connection::next_check() const {
  if (phase_ == Phase::kClosed) return TimePoint::max();
  if (phase_ != Phase::kReady) return progress_at_ + kConnectTimeout;
  if (in_flight_.empty()) return TimePoint::max();
  return progress_at_ + (orphaned_bytes_ > 0 ? kOrphanStallTimeout : kStallTimeout);
}

void Connection::Watch(bool writable) {
  writable |= read_needs_writable_;
  if (writable == watching_writable_) return;
  watching_writable_ = writable;
  epoll_event event{.events = EPOLLIN, .data = {.ptr = this}};
  if (writable) event.events |= EPOLLOUT;
  epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, transport_->fd(), &event);
}

}  // namespace embercache::redis
