// The most that an answer can cost: a server that does nothing but write bytes that it has.
//   writev_server FILE REQUEST_BYTES
// Prints its port; then, on one connection after the other, answers every REQUEST_BYTES that come
// with the bytes of FILE, from buffers as large as the pages of a pool.

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kPageBytes = 256 << 10;

std::vector<asio::const_buffer> PagesOf(const std::string& bytes) {
  std::vector<asio::const_buffer> pages;
  for (size_t at = 0; at < bytes.size(); at += kPageBytes) {
    pages.push_back(asio::buffer(bytes.data() + at, std::min(kPageBytes, bytes.size() - at)));
  }
  return pages;
}

// Asio's own condition hands the kernel 64 KiB a call.
size_t AllAtOnce(const error_code& error, size_t /*written*/) {
  return error ? 0 : size_t{1} << 30;
}

void Serve(Tcp::socket socket, const std::vector<asio::const_buffer>& answer,
           std::vector<char>& request) {
  error_code error;
  socket.set_option(Tcp::no_delay(true), error);
  while (!error) {
    asio::read(socket, asio::buffer(request), error);
    if (!error) asio::write(socket, answer, AllAtOnce, error);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: writev_server FILE REQUEST_BYTES\n");
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const std::vector<asio::const_buffer> answer = PagesOf(bytes);
  std::vector<char> request(std::strtoul(argv[2], nullptr, 10));
  asio::io_context io;
  Tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
  fmt::print("{}\n", acceptor.local_endpoint().port());
  std::fflush(stdout);
  for (;;) Serve(acceptor.accept(), answer, request);
}
