#include "src/cli/server_client.h"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <nlohmann/json.hpp>

#include "src/cli/option_types.h"

namespace embercache {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

using Error = boost::system::error_code;

constexpr uint64_t kMaxBodyBytes = uint64_t{16} << 20;

Status NoAnswer(const ServerAddress& server, std::string_view why) {
  return Status::Unavailable(fmt::format("{} does not answer: {}", server.Authority(), why));
}

std::string WhyRefused(const http::response<http::string_body>& answer) {
  const auto body = nlohmann::json::parse(answer.body(), nullptr, false);
  const auto message = nlohmann::json::json_pointer("/error/message");
  if (body.is_object() && body.contains(message) && body[message].is_string()) {
    return body[message].get<std::string>();
  }
  return fmt::format("status {}", answer.result_int());
}

// One GET on a connection of its own.
class Exchange {
 public:
  Exchange(asio::io_context& io, ServerAddress server, std::string_view path, TimePoint deadline)
      : server_(std::move(server)), resolver_(io), stream_(io) {
    request_.target(path);
    request_.set(http::field::host, server_.Authority());
    request_.set(http::field::connection, "close");
    parser_.body_limit(kMaxBodyBytes);
    stream_.expires_at(deadline);
  }

  void Start() {
    resolver_.async_resolve(server_.host, server_.port, [this](Error error, auto addresses) {
      if (Goes(error)) Connect(addresses);
    });
  }
  // Timed out when it has not ended.
  Error error() const { return error_; }
  // REQUIRES: no error.
  http::response<http::string_body> TakeAnswer() { return parser_.release(); }

 private:
  void Connect(const asio::ip::tcp::resolver::results_type& addresses) {
    stream_.async_connect(addresses, [this](Error error, const asio::ip::tcp::endpoint&) {
      if (Goes(error)) Send();
    });
  }
  void Send() {
    http::async_write(stream_, request_, [this](Error error, size_t) {
      if (Goes(error)) Receive();
    });
  }
  void Receive() {
    http::async_read(stream_, buffer_, parser_, [this](Error error, size_t) { error_ = error; });
  }
  bool Goes(Error error) {
    if (error) error_ = error;
    return !error;
  }

  const ServerAddress server_;
  asio::ip::tcp::resolver resolver_;
  beast::tcp_stream stream_;
  http::request<http::empty_body> request_{http::verb::get, "/", 11};
  beast::flat_buffer buffer_;
  http::response_parser<http::string_body> parser_;
  Error error_ = make_error_code(asio::error::timed_out);
};

}  // namespace

std::string ServerAddress::Authority() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", is_v6 ? "[" : "", host, is_v6 ? "]" : "", port);
}

Result<ServerAddress> ParseServerAddress(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  const Status wrong = Status::Invalid(
      fmt::format("{} is no address of a server, such as http://127.0.0.1:8080", Quoted(text)));
  std::string_view rest = text;
  if (rest.starts_with(kScheme)) rest.remove_prefix(kScheme.size());
  if (rest.ends_with('/')) rest.remove_suffix(1);
  size_t host_end = rest.find(':');
  ServerAddress server;
  if (rest.starts_with('[')) {
    host_end = rest.find(']');
    if (host_end == std::string_view::npos) return wrong;
    server.host = rest.substr(1, host_end - 1);
    ++host_end;
  } else {
    server.host = rest.substr(0, host_end);
  }
  rest.remove_prefix(std::min(host_end, rest.size()));
  if (!rest.empty() && rest.front() != ':') return wrong;
  server.port = rest.empty() ? "8080" : rest.substr(1);
  const bool is_number = server.port.find_first_not_of("0123456789") == std::string::npos;
  if (server.host.empty() || server.port.empty() || server.port.size() > 5 || !is_number ||
      server.host.find('/') != std::string::npos) {
    return wrong;
  }
  return server;
}

Result<std::string> FetchText(const ServerAddress& server, std::string_view path, Duration time) {
  asio::io_context io;
  const TimePoint deadline = SteadyClock().Now() + time;
  Exchange exchange(io, server, path, deadline);
  exchange.Start();
  io.run_until(deadline);  // a resolver knows no deadline
  if (exchange.error()) return NoAnswer(server, exchange.error().message());
  http::response<http::string_body> answer = exchange.TakeAnswer();
  if (answer.result() != http::status::ok) return NoAnswer(server, WhyRefused(answer));
  return std::move(answer.body());
}

}  // namespace embercache
