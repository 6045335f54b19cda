#include "src/cli/server_client.h"

#include <fmt/format.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <nlohmann/json.hpp>

#include "src/cli/option_types.h"

namespace embercache {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

constexpr auto kToken = asio::as_tuple(asio::use_awaitable);
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

// Empty when it went well; arguments of awaited calls are named, since g++ 12 mistreats temporaries
// in such expressions.
asio::awaitable<boost::system::error_code> Exchange(const ServerAddress& server,
                                                    const std::string& path, TimePoint deadline,
                                                    http::response<http::string_body>* answer) {
  const auto executor = co_await asio::this_coro::executor;
  beast::tcp_stream stream(executor);
  asio::ip::tcp::resolver resolver(executor);
  stream.expires_at(deadline);
  const auto [unknown, addresses] =
      co_await resolver.async_resolve(server.host, server.port, kToken);
  if (unknown) co_return unknown;
  const auto [refused, peer] = co_await stream.async_connect(addresses, kToken);
  if (refused) co_return refused;
  http::request<http::empty_body> request(http::verb::get, path, 11);
  request.set(http::field::host, server.Authority());
  request.set(http::field::connection, "close");
  const auto [unsent, sent] = co_await http::async_write(stream, request, kToken);
  if (unsent) co_return unsent;
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(kMaxBodyBytes);
  const auto [failed, got] = co_await http::async_read(stream, buffer, parser, kToken);
  *answer = parser.release();
  co_return failed;
}

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
  http::response<http::string_body> answer;
  auto error = make_error_code(boost::asio::error::timed_out);
  const std::string target(path);
  const TimePoint deadline = SteadyClock().Now() + time;
  asio::co_spawn(io, Exchange(server, target, deadline, &answer),
                 [&error](const std::exception_ptr& thrown, boost::system::error_code outcome) {
                   if (!thrown) error = outcome;
                 });
  io.run_until(deadline);  // a resolver knows no deadline
  if (error) return NoAnswer(server, error.message());
  if (answer.result() != http::status::ok) return NoAnswer(server, WhyRefused(answer));
  return std::move(answer.body());
}

}  // namespace embercache
