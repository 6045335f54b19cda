#include "src/cli/encode_client.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string_view>

namespace embercache {
namespace {

class LocalExchange final : public HttpExchange {
 public:
  explicit LocalExchange(HttpRequest request) : HttpExchange(std::move(request)) {}
  ~LocalExchange() override {
    if (answered_) return;
    HttpResponse none;
    none.status = 500;
    response_.set_value(std::move(none));
  }
  void Respond(HttpResponse response) override {
    answered_ = true;
    response_.set_value(std::move(response));
  }
  void OnClientGone(std::function<void()>) override {}
  std::future<HttpResponse> response() { return response_.get_future(); }

 private:
  std::promise<HttpResponse> response_;
  bool answered_ = false;
};

// No file has it in it, but by a chance of one in 2^128.
std::string MakeBoundary() {
  std::random_device random;
  return fmt::format("embercache-{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

void Append(BodyBuffer& body, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  std::copy(bytes.begin(), bytes.end(), body.Extend(bytes.size()).begin());
}

Status AppendFile(BodyBuffer& body, const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (!file) return Status::FromErrno(errno, "cannot read");
  struct stat info;
  if (fstat(fileno(file.get()), &info) != 0) return Status::FromErrno(errno, "cannot read");
  if (!S_ISREG(info.st_mode)) return Status::Invalid("is no regular file");
  const auto size = static_cast<size_t>(info.st_size);
  const std::span<std::byte> bytes = body.Extend(size);
  if (std::fread(bytes.data(), 1, size, file.get()) == size) return Status::Ok();
  return std::ferror(file.get()) != 0 ? Status::FromErrno(errno, "cannot read")
                                      : Status::Unavailable("became shorter while it was read");
}

}  // namespace

EncodeClient::EncodeClient(EncodeServer* server) : server_(server), boundary_(MakeBoundary()) {}

Result<std::future<HttpResponse>> EncodeClient::Encode(const std::string& path) const {
  HttpRequest request;
  request.method = "POST";
  request.path = "/v1/encode";
  request.headers = {{"Content-Type", "multipart/form-data; boundary=" + boundary_}};
  Append(request.body, fmt::format("--{}\r\nContent-Disposition: form-data; name=\"image\"; "
                                   "filename=\"image\"\r\n\r\n",
                                   boundary_));
  EMBERCACHE_RETURN_IF_ERROR(AppendFile(request.body, path));
  Append(request.body, fmt::format("\r\n--{}--\r\n", boundary_));
  request.received = SteadyClock().Now();
  auto exchange = std::make_shared<LocalExchange>(std::move(request));
  auto response = exchange->response();
  server_->Handle(std::move(exchange));
  return response;
}

}  // namespace embercache
