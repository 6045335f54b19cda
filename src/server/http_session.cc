#include "src/server/http_session.h"

// One coroutine a connection, on the strand of its socket: head, body, wait for the answer, send.
// Every wait for the socket has a deadline: SetDeadline comes before it. Arguments of awaited calls
// are named, since g++ 12 mistreats temporaries in such expressions.

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http.hpp>
#include <cstring>
#include <limits>
#include <string>

#include "src/server/error_response.h"
#include "src/server/http_head.h"
#include "src/server/payload_body.h"
#include "src/server/request_headers.h"

namespace embercache {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr auto kToken = asio::as_tuple(asio::use_awaitable);
constexpr uint32_t kMaxHeadBytes = 16 << 10;
// Refused bodies up to this size are read, so that the connection stays usable.
constexpr uint64_t kMaxDiscardedBytes = 1 << 20;
constexpr size_t kReadBytes = 64 << 10;
constexpr Duration kLingerTime = std::chrono::seconds(5);
constexpr char kRequestId[] = "X-Request-Id";
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

// An answer: the request is refused.
std::optional<HttpResponse> ReadHead(const http::request<http::buffer_body>& message,
                                     HttpRequest* request) {
  request->method = std::string(message.method_string());
  for (const auto& field : message) {
    request->headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  const std::string_view target(message.target().data(), message.target().size());
  return TakeHead(target, message.version(), request);
}

HttpResponse TooLarge(uint64_t limit) {
  return ErrorResponse(
      413, StatusCodeName(StatusCode::kResourceExhausted),
      "the body is larger than " + std::to_string(limit) + " bytes (--max-body-mb)");
}

HttpResponse NoRoom() {
  return ErrorResponse(
      Status::ResourceExhausted("too many bytes of request bodies are in memory now"));
}

}  // namespace

bool BodyBudget::Charge::Add(uint64_t bytes) {
  if (budget_->used_.fetch_add(bytes) + bytes > budget_->limit_) {
    budget_->used_.fetch_sub(bytes);
    return false;
  }
  bytes_ += bytes;
  return true;
}

struct HttpSession::Incoming {
  // The client sends its body only once it is told to.
  bool ExpectsContinue() const {
    const auto& head = parser.get();
    return head.version() >= 11 && boost::beast::iequals(head[http::field::expect], "100-continue");
  }

  http::request_parser<http::buffer_body> parser;
  HttpRequest request;
  std::shared_ptr<BodyBudget::Charge> charge;
};

class HttpSession::Exchange final : public HttpExchange {
 public:
  Exchange(HttpRequest request, std::shared_ptr<HttpSession> session)
      : HttpExchange(std::move(request)), session_(std::move(session)) {}

  ~Exchange() override {
    if (!responded_) Respond(ErrorResponse(Status::Internal("the request was dropped")));
  }

  void Respond(HttpResponse response) override {
    responded_ = true;
    if (session_->ended_) return;
    asio::post(session_->socket_.get_executor(),
               [session = session_, response = std::move(response)]() mutable {
                 session->answer_ = std::move(response);
                 session->answered_.cancel();
               });
  }

  void OnClientGone(std::function<void()> gone) override {
    if (session_->ended_) return gone();
    asio::post(session_->socket_.get_executor(), [session = session_, gone = std::move(gone)] {
      if (session->gone_) return gone();
      if (session->waiting_) session->on_gone_ = gone;
    });
  }

 private:
  const std::shared_ptr<HttpSession> session_;
  bool responded_ = false;
};

HttpSession::HttpSession(asio::ip::tcp::socket socket, std::shared_ptr<const HttpContext> context)
    : context_(std::move(context)),
      socket_(std::move(socket)),
      deadline_(socket_.get_executor()),
      answered_(socket_.get_executor()),
      buffer_(kReadBytes) {}

asio::awaitable<void> HttpSession::Run() {
  const std::shared_ptr<HttpSession> self = shared_from_this();
  error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  while (co_await ServeOne()) {
  }
  if (linger_) co_await Linger();
  ended_ = true;
  deadline_.cancel();
  socket_.close(ignored);
}

asio::awaitable<void> HttpSession::Refuse() {
  const std::shared_ptr<HttpSession> self = shared_from_this();
  const HttpRequest none;
  HttpResponse refusal = ErrorResponse(Status::Unavailable("too many connections"));
  const bool sent = co_await Send(none, std::move(refusal), false);
  if (sent) co_await Linger();
  ended_ = true;
  deadline_.cancel();
}

void HttpSession::Drain() {
  idle_since_ = TimePoint::max();
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    self->draining_ = true;
    error_code ignored;
    if (self->idle_) self->socket_.cancel(ignored);
  });
}

void HttpSession::Abort() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    self->draining_ = true;
    if (self->waiting_) self->ClientGone();
    error_code ignored;
    self->socket_.close(ignored);
  });
}

asio::awaitable<bool> HttpSession::WaitForRequest() {
  if (buffer_.size() > 0) co_return true;
  if (draining_) co_return false;
  const TimePoint now = SteadyClock().Now();
  idle_ = true;
  idle_since_ = now;
  SetDeadline(now + context_->options.idle_timeout);
  const auto [error, bytes] = co_await socket_.async_read_some(buffer_.prepare(kReadBytes), kToken);
  idle_ = false;
  idle_since_ = TimePoint::max();
  buffer_.commit(bytes);
  co_return !error;
}

asio::awaitable<bool> HttpSession::ServeOne() {
  if (!co_await WaitForRequest()) co_return false;
  Incoming incoming;
  auto& parser = incoming.parser;
  parser.header_limit(kMaxHeadBytes);
  parser.body_limit(boost::none);  // ReadBody has the limit
  SetDeadline(SteadyClock().Now() + context_->options.head_timeout);
  const auto [error, bytes] = co_await http::async_read_header(socket_, buffer_, parser, kToken);
  (void)bytes;
  if (error) {
    if (error.category() != http::make_error_code(http::error::bad_method).category() ||
        error == http::error::end_of_stream || error == http::error::partial_message) {
      co_return false;
    }
    const int status = error == http::error::header_limit ? 431 : 400;
    HttpResponse refusal = ErrorResponse(status, StatusCodeName(StatusCode::kInvalid),
                                         "the head is not HTTP/1.1: " + error.message());
    linger_ = co_await Send(incoming.request, std::move(refusal), false);
    co_return false;
  }

  HttpRequest& request = incoming.request;
  if (std::optional<HttpResponse> refusal = ReadHead(parser.get(), &request)) {
    linger_ = co_await Send(request, std::move(*refusal), false);
    co_return false;
  }
  HttpRequest head;  // for Send; the request moves on
  head.method = request.method;
  head.path = request.path;
  head.headers.emplace_back(kRequestId, request.Header(kRequestId));
  std::optional<HttpResponse> response = context_->handler->Admit(request);
  bool keep_alive = parser.keep_alive();
  if (!response) {
    response = co_await ReadBody(incoming);
    if (!response && gone_) co_return false;
    if (response) keep_alive = false;
  } else {
    const auto size = parser.content_length_remaining();
    const bool small = parser.is_done() || (size && *size <= kMaxDiscardedBytes);
    if (small && !incoming.ExpectsContinue()) {
      if (!co_await DiscardBody(size.value_or(0))) co_return false;
    } else {
      keep_alive = false;
    }
  }
  if (!response) {
    request.received = SteadyClock().Now();
    probes_ = parser.get().version() >= 11;
    auto exchange = std::make_shared<Exchange>(std::move(request), shared_from_this());
    response = co_await AwaitAnswer(std::move(exchange));
    if (!response) co_return false;
  }
  keep_alive = keep_alive && !draining_;
  const bool sent = co_await Send(head, std::move(*response), keep_alive);
  if (!sent) {
    // Closed with a reset: what a slow reader left would stay in the kernel's buffers else.
    error_code ignored;
    socket_.set_option(asio::socket_base::linger(true, 0), ignored);
    co_return false;
  }
  linger_ = !keep_alive;
  co_return keep_alive;
}

asio::awaitable<std::optional<HttpResponse>> HttpSession::ReadBody(Incoming& incoming) {
  const auto& parser = incoming.parser;
  const uint64_t limit = context_->handler->MaxBodyBytes();
  const auto size = parser.content_length();
  if (size && *size > limit) {
    if (!incoming.ExpectsContinue() && *size - limit <= kMaxDiscardedBytes)
      (void)co_await DiscardBody(*size);
    co_return TooLarge(limit);
  }
  if (!parser.chunked() && size.value_or(0) == 0) co_return std::nullopt;
  incoming.charge = std::make_shared<BodyBudget::Charge>(context_->bodies);
  incoming.request.charge = incoming.charge;
  if (size && !incoming.charge->Fits(*size)) co_return NoRoom();
  if (incoming.ExpectsContinue() && !co_await SendContinue()) {
    gone_ = true;
    co_return std::nullopt;
  }
  if (size) co_return co_await ReadSizedBody(incoming, *size);
  co_return co_await ReadChunkedBody(incoming);
}

asio::awaitable<bool> HttpSession::SendContinue() {
  SetDeadline(SteadyClock().Now() + context_->options.slow_grace);
  const auto [error, bytes] =
      co_await asio::async_write(socket_, asio::buffer(kContinue.data(), kContinue.size()), kToken);
  (void)bytes;
  co_return !error;
}

// Straight into the body, past the parser. It is charged for what has come, so that clients who
// only announce large bodies keep nobody out.
asio::awaitable<std::optional<HttpResponse>> HttpSession::ReadSizedBody(Incoming& incoming,
                                                                        uint64_t size) {
  const std::span<std::byte> body = incoming.request.body.Extend(size);
  size_t got = std::min<size_t>(size, buffer_.size());
  std::memcpy(body.data(), buffer_.data().data(), got);
  buffer_.consume(got);
  if (!incoming.charge->Add(got)) co_return NoRoom();
  const TimePoint start = SteadyClock().Now();
  while (got < size) {
    SetDeadline(SlowAfter(start, got));
    const auto [error, bytes] =
        co_await socket_.async_read_some(asio::buffer(body.data() + got, size - got), kToken);
    got += bytes;
    if (!incoming.charge->Add(bytes)) co_return NoRoom();
    if (error == asio::error::operation_aborted && !draining_) {
      co_return ErrorResponse(Status::DeadlineExceeded("the body came too slowly"));
    }
    if (error) {
      gone_ = true;
      co_return std::nullopt;
    }
  }
  co_return std::nullopt;
}

asio::awaitable<std::optional<HttpResponse>> HttpSession::ReadChunkedBody(Incoming& incoming) {
  auto& parser = incoming.parser;
  BodyBuffer& body = incoming.request.body;
  const uint64_t limit = context_->handler->MaxBodyBytes();
  const TimePoint start = SteadyClock().Now();
  while (!parser.is_done()) {
    const size_t before = body.size();
    const std::span<std::byte> room = body.Extend(kReadBytes);
    parser.get().body() = {room.data(), room.size(), true};
    SetDeadline(SlowAfter(start, before));
    const auto [error, bytes] = co_await http::async_read_some(socket_, buffer_, parser, kToken);
    (void)bytes;
    const size_t got = room.size() - parser.get().body().size;
    body.Truncate(before + got);
    if (body.size() > limit) co_return TooLarge(limit);
    if (!incoming.charge->Add(got)) co_return NoRoom();
    if (error == asio::error::operation_aborted && !draining_) {
      co_return ErrorResponse(Status::DeadlineExceeded("the body came too slowly"));
    }
    if (error == http::error::need_buffer || !error) continue;
    if (error.category() == http::make_error_code(http::error::bad_chunk).category() &&
        error != http::error::partial_message) {
      co_return ErrorResponse(Status::Invalid("the chunked body is malformed: " + error.message()));
    }
    gone_ = true;
    co_return std::nullopt;
  }
  co_return std::nullopt;
}

asio::awaitable<bool> HttpSession::DiscardBody(uint64_t size) {
  const size_t here = std::min<size_t>(size, buffer_.size());
  buffer_.consume(here);
  std::vector<std::byte> scratch(std::min<uint64_t>(size - here, kReadBytes));
  const TimePoint start = SteadyClock().Now();
  for (uint64_t left = size - here; left > 0;) {
    SetDeadline(SlowAfter(start, size - left));
    const auto [error, bytes] = co_await socket_.async_read_some(
        asio::buffer(scratch.data(), std::min<uint64_t>(left, scratch.size())), kToken);
    if (error) co_return false;
    left -= bytes;
  }
  co_return true;
}

asio::awaitable<std::optional<HttpResponse>> HttpSession::AwaitAnswer(
    std::shared_ptr<HttpExchange> exchange) {
  answer_.reset();
  waiting_ = true;
  // Moved rather than cancelled: an expiry that is on its way here must find it in the future.
  deadline_.expires_at(TimePoint::max());
  WatchClient();
  context_->handler->Handle(std::move(exchange));
  while (!answer_ && !gone_) {
    answered_.expires_at(std::chrono::steady_clock::time_point::max());
    (void)co_await answered_.async_wait(kToken);
  }
  waiting_ = false;
  on_gone_ = nullptr;
  if (gone_) co_return std::nullopt;
  error_code ignored;
  socket_.cancel(ignored);  // WatchClient's wait
  std::optional<HttpResponse> answer = std::move(answer_);
  answer_.reset();
  co_return answer;
}

void HttpSession::WatchClient() {
  socket_.async_wait(
      asio::ip::tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
        if (error || !self->waiting_) return;
        char byte;
        const ssize_t got = recv(self->socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (got > 0) return self->ReadAhead();
        if (got < 0 && errno == EAGAIN) return;
        got == 0 ? self->ProbeClient() : self->ClientGone();
      });
}

void HttpSession::ReadAhead() {
  const size_t room = kReadBytes - buffer_.size();
  if (room == 0) return;
  const auto memory = buffer_.prepare(room);
  const ssize_t got = recv(socket_.native_handle(), memory.data(), room, MSG_DONTWAIT);
  if (got > 0) buffer_.commit(static_cast<size_t>(got));
  WatchClient();
}

void HttpSession::ProbeClient() {
  // First, so that the reset is not missed.
  socket_.async_wait(asio::ip::tcp::socket::wait_error,
                     [self = shared_from_this()](error_code error) {
                       if (!error && self->waiting_) self->ClientGone();
                     });
  if (!probes_) return;
  const ssize_t sent = send(socket_.native_handle(), kContinue.data(), kContinue.size(),
                            MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(kContinue.size())) ClientGone();
}

void HttpSession::ClientGone() {
  gone_ = true;
  answered_.cancel();
  if (on_gone_) std::exchange(on_gone_, nullptr)();
}

asio::awaitable<bool> HttpSession::Send(const HttpRequest& request, HttpResponse response,
                                        bool keep_alive) {
  http::response<PayloadBody> message;
  message.version(11);
  message.result(static_cast<unsigned>(response.status));
  if (response.status == 503) message.set(http::field::retry_after, "1");
  for (const auto& [name, value] : response.headers) message.set(name, value);
  const std::string id(request.Header(kRequestId));
  const bool has_id = id.empty() || message.count(kRequestId) > 0;
  if (!has_id && CheckRequestId(kRequestId, id).ok()) message.set(kRequestId, id);
  if (response.status != 204) {
    message.set(http::field::content_type, response.content_type);
    message.body() = BodyOf(response);
    message.content_length(message.body().bytes);
  }
  message.keep_alive(keep_alive);
  context_->handler->OnAnswer(request, response.status);

  http::response_serializer<PayloadBody> serializer(message);
  const bool head_only = request.method == "HEAD";
  serializer.split(head_only);
  const TimePoint start = SteadyClock().Now();
  uint64_t sent = 0;
  while (head_only ? !serializer.is_header_done() : !serializer.is_done()) {
    SetDeadline(std::min(response.deadline, SlowAfter(start, sent)));
    const auto [error, bytes] = co_await http::async_write_some(socket_, serializer, kToken);
    sent += bytes;
    if (error) co_return false;
  }
  co_return true;
}

asio::awaitable<void> HttpSession::Linger() {
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  std::vector<std::byte> scratch(kReadBytes);
  SetDeadline(SteadyClock().Now() + kLingerTime);
  for (;;) {
    const auto [error, bytes] = co_await socket_.async_read_some(asio::buffer(scratch), kToken);
    (void)bytes;
    if (error) break;
  }
  socket_.close(ignored);
}

void HttpSession::SetDeadline(TimePoint when) {
  deadline_.expires_at(when);
  deadline_.async_wait([self = shared_from_this()](error_code error) {
    // Late news of a deadline that has been moved since.
    if (error || SteadyClock().Now() < self->deadline_.expiry()) return;
    error_code ignored;
    self->socket_.cancel(ignored);
  });
}

TimePoint HttpSession::SlowAfter(TimePoint start, uint64_t bytes) const {
  const double seconds =
      static_cast<double>(bytes) / static_cast<double>(context_->options.min_bytes_per_second);
  return start + context_->options.slow_grace +
         std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace embercache
