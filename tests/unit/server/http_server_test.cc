#include "src/server/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "src/server/error_response.h"

namespace embercache {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// A client that writes and reads bytes.
class Client {
 public:
  explicit Client(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const timeval limit = {30, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  ~Client() { Close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void Send(const std::string& text) const {
    ASSERT_EQ(send(fd_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  // One answer with a Content-Length: its head and body.
  std::string Read() {
    size_t end;
    while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
      if (!More()) return std::exchange(buffer_, {});
    }
    const size_t field = buffer_.find("Content-Length: ");
    const size_t body = field < end ? std::stoul(buffer_.substr(field + 16)) : 0;
    while (buffer_.size() < end + 4 + body && More()) {
    }
    std::string answer = buffer_.substr(0, end + 4 + body);
    buffer_.erase(0, answer.size());
    return answer;
  }
  // All until the server closes.
  std::string ReadAll() {
    while (More()) {
    }
    return std::exchange(buffer_, {});
  }
  void EndSending() const { ASSERT_EQ(shutdown(fd_, SHUT_WR), 0); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  int fd() const { return fd_; }

 private:
  bool More() {
    char bytes[4096];
    const ssize_t got = recv(fd_, bytes, sizeof bytes, 0);
    if (got > 0) buffer_.append(bytes, static_cast<size_t>(got));
    return got > 0;
  }

  int fd_;
  std::string buffer_;
};

// Answers with the request's body; keeps requests to /wait until Release.
class EchoHandler final : public HttpHandler {
 public:
  std::optional<HttpResponse> Admit(const HttpRequest& head) override {
    if (head.path == "/refused") return ErrorResponse(Status::NotFound("refused"));
    return std::nullopt;
  }

  void Handle(std::shared_ptr<HttpExchange> exchange) override {
    HttpRequest& request = exchange->request();
    if (request.path == "/drop") return;
    if (request.path == "/wait") {
      const std::lock_guard<std::mutex> lock(mutex_);
      waiting_.push_back(exchange);
      changed_.notify_all();
      exchange->OnClientGone([this] { ++gone; });
      return;
    }
    HttpResponse response;
    response.content_type = "text/plain";
    const std::span<std::byte> body = request.body.bytes();
    response.text.assign(reinterpret_cast<const char*>(body.data()), body.size());
    if (request.path == "/head") {
      response.text =
          request.path + " " + request.query + " " + std::string(request.Header("Host"));
    }
    if (request.path == "/large") response.payload.assign(100, ConstBuffer(megabyte));
    exchange->Respond(std::move(response));
  }

  void OnAnswer(const HttpRequest& /*head*/, int status) override { last_status = status; }
  uint64_t MaxBodyBytes() const override { return 64 << 20; }

  void WaitFor(size_t requests) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return waiting_.size() >= requests; });
  }
  void Release() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& exchange : waiting_) exchange->Respond({.text = "released"});
    waiting_.clear();
  }

  std::atomic<int> gone{0};
  std::atomic<int> last_status{0};
  const std::vector<std::byte> megabyte = std::vector<std::byte>(1 << 20);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<HttpExchange>> waiting_;
};

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() { options_.port = 0; }
  ~HttpServerTest() override { handler_.Release(); }

  void Start() {
    auto server = HttpServer::Start(options_, &handler_);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(*server);
  }

  std::string Ask(const std::string& request) {
    Client client(server_->port());
    client.Send(request);
    return client.Read();
  }

  bool RefusesConnections() const {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server_->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const bool refuses = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0;
    close(fd);
    return refuses;
  }

  static std::string Post(const std::string& path, const std::string& body) {
    return "POST " + path +
           " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
           body;
  }

  HttpServerOptions options_;
  EchoHandler handler_;
  std::unique_ptr<HttpServer> server_;
};

constexpr char kGet[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
constexpr char kWait[] = "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n";

TEST_F(HttpServerTest, AnswersSeveralRequestsOnAConnection) {
  Start();
  Client client(server_->port());
  for (const char* body : {"one", "", "three"}) {
    client.Send(Post("/", body));
    const std::string answer = client.Read();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
    EXPECT_THAT(answer, EndsWith(std::string("\r\n\r\n") + body));
  }
}

TEST_F(HttpServerTest, ReadsABodyThatComesInPieces) {
  Start();
  Client client(server_->port());
  const std::string request = Post("/", std::string(1000, 'x') + "end");
  for (size_t at = 0; at < request.size(); at += 100) {
    client.Send(request.substr(at, 100));
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_THAT(client.Read(), EndsWith("xend"));
}

TEST_F(HttpServerTest, SendsPayloadFromSeveralBuffers) {
  Start();
  Client client(server_->port());
  client.Send(
      "POST /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc");
  const std::string answer = client.ReadAll();
  const size_t body = answer.find("\r\n\r\n") + 4;
  EXPECT_EQ(answer.size() - body, 3 + (size_t{100} << 20));
  EXPECT_EQ(answer.substr(body, 4), std::string("abc\0", 4));
}

TEST_F(HttpServerTest, ARequestThatIsDroppedIsAnsweredWith500) {
  Start();
  EXPECT_THAT(Ask("GET /drop HTTP/1.1\r\nHost: x\r\n\r\n"), StartsWith("HTTP/1.1 500"));
}

TEST_F(HttpServerTest, RefusesAtTheHead) {
  Start();
  Client client(server_->port());
  client.Send(Post("/refused", "some body"));
  EXPECT_THAT(client.Read(), StartsWith("HTTP/1.1 404"));
  client.Send(Post("/", "next"));
  EXPECT_THAT(client.Read(), EndsWith("next"));
}

TEST_F(HttpServerTest, RefusesAHeadWithoutExactlyOneHost) {
  Start();
  EXPECT_THAT(Ask("GET /head HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("more than once")));
  EXPECT_THAT(Ask("GET /head HTTP/1.1\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("Host is missing")));
  EXPECT_THAT(Ask("GET /head HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, TakesATargetInAbsoluteForm) {
  Start();
  const auto ask = [this](const std::string& target) {
    return Ask("GET " + target + " HTTP/1.1\r\nHost: header\r\n\r\n");
  };
  EXPECT_THAT(ask("http://uri:81/head?a=b"), EndsWith("\r\n\r\n/head a=b uri:81"));
  EXPECT_THAT(ask("HTTPS://uri/head"), EndsWith("\r\n\r\n/head  uri"));
  EXPECT_THAT(ask("/head?to=http://other/"), EndsWith("/head to=http://other/ header"));
  EXPECT_THAT(ask("http://uri"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask("http://uri?a=b"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask("ftp://uri/head"), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("'ftp'")));
  EXPECT_THAT(ask("http:///head"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(ask("http://me@uri/head"), StartsWith("HTTP/1.1 400"));
}

TEST_F(HttpServerTest, RefusesTransferCodingsOtherThanChunkedAndCloses) {
  Start();
  const auto ask = [this](const std::string& headers, const std::string& version = "1.1") {
    Client client(server_->port());
    client.Send("POST /head HTTP/" + version + "\r\nHost: x\r\n" + headers +
                "\r\n3\r\nabc\r\n0\r\n\r\n" + kGet);
    client.EndSending();
    return client.ReadAll();
  };
  const auto one_answer = [](const std::string& status) {
    return AllOf(StartsWith("HTTP/1.1 " + status), Not(HasSubstr("HTTP/1.1 200")));
  };
  EXPECT_THAT(ask("Transfer-Encoding: gzip, chunked\r\n"), one_answer("501"));
  EXPECT_THAT(ask("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"), one_answer("501"));
  EXPECT_THAT(ask("Transfer-Encoding: chunked, chunked\r\n"), one_answer("501"));
  EXPECT_THAT(ask("Transfer-Encoding: gzip\r\n"), one_answer("501"));
  EXPECT_THAT(ask("Transfer-Encoding: chunked\r\n", "1.0"), one_answer("400"));
  EXPECT_THAT(ask("Transfer-Encoding: Chunked\r\n"), HasSubstr("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, BoundsTheBodiesInMemoryOverAllConnections) {
  options_.max_bodies_bytes = 1000;
  Start();
  Client holder(server_->port());
  holder.Send(Post("/wait", std::string(600, 'a')));
  handler_.WaitFor(1);
  const std::string refused = Ask(Post("/", std::string(600, 'b')));
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(refused, HasSubstr("Retry-After"));
  EXPECT_THAT(Ask(Post("/", std::string(300, 'c'))), StartsWith("HTTP/1.1 200"));
  handler_.Release();
  EXPECT_THAT(holder.Read(), HasSubstr("released"));
  EXPECT_THAT(Ask(Post("/", std::string(600, 'd'))), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, BodiesThatAreOnlyAnnouncedKeepNobodyOut) {
  options_.max_bodies_bytes = 1000;
  Start();
  Client announces(server_->port());
  announces.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n" +
                 std::string(100, 'a'));
  EXPECT_THAT(Ask(Post("/", std::string(800, 'b'))), StartsWith("HTTP/1.1 200"));
  Client holder(server_->port());
  holder.Send(Post("/wait", std::string(800, 'c')));
  handler_.WaitFor(1);
  announces.Send(std::string(800, 'a'));
  EXPECT_THAT(announces.Read(), StartsWith("HTTP/1.1 503"));
}

TEST_F(HttpServerTest, RefusesConnectionsBeyondItsLimitWhileAllHaveARequest) {
  options_.max_connections = 2;
  Start();
  Client a(server_->port());
  Client b(server_->port());
  a.Send(kWait);
  b.Send(kWait);
  handler_.WaitFor(2);
  Client c(server_->port());
  EXPECT_THAT(c.ReadAll(), StartsWith("HTTP/1.1 503"));
  handler_.Release();
  EXPECT_THAT(a.Read(), HasSubstr("released"));
  EXPECT_THAT(b.Read(), HasSubstr("released"));
  EXPECT_THAT(Ask(kGet), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, AtItsLimitItClosesTheConnectionThatIsIdleForTheLongest) {
  options_.max_connections = 3;
  Start();
  Client busy(server_->port());
  busy.Send(kWait);
  handler_.WaitFor(1);
  Client oldest(server_->port());
  oldest.Send(kGet);
  oldest.Read();
  Client newer(server_->port());
  newer.Send(kGet);
  newer.Read();
  EXPECT_THAT(Ask(kGet), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(oldest.ReadAll(), "");
  newer.Send(kGet);
  EXPECT_THAT(newer.Read(), StartsWith("HTTP/1.1 200"));
  handler_.Release();
  EXPECT_THAT(busy.Read(), HasSubstr("released"));
}

TEST_F(HttpServerTest, TellsWhenAClientIsGone) {
  Start();
  Client client(server_->port());
  client.Send(kWait);
  handler_.WaitFor(1);
  client.Close();
  while (handler_.gone == 0) std::this_thread::sleep_for(milliseconds(1));
  handler_.Release();  // to nobody
  EXPECT_THAT(Ask(kGet), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, AClientThatSendsNoMoreGetsItsAnswer) {
  Start();
  for (const char* version : {"1.1", "1.0"}) {
    Client client(server_->port());
    client.Send(std::string("GET /wait HTTP/") + version + "\r\nHost: x\r\n\r\n");
    handler_.WaitFor(1);
    client.EndSending();
    const bool is_asked = version == std::string("1.1");  // whether it is still there
    EXPECT_THAT(is_asked ? client.Read() : "", StartsWith(is_asked ? "HTTP/1.1 100" : ""));
    handler_.Release();
    EXPECT_THAT(client.ReadAll(), HasSubstr("released"));
  }
  EXPECT_EQ(handler_.gone, 0);
}

TEST_F(HttpServerTest, AClientThatSendsNoMoreAndThenLeavesHarmsNobody) {
  Start();
  Client client(server_->port());
  client.Send(kWait);
  handler_.WaitFor(1);
  client.EndSending();
  client.Read();
  EXPECT_EQ(handler_.gone, 0);
  client.Close();
  handler_.Release();
  EXPECT_THAT(Ask(kGet), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, AClientThatSentTheNextRequestEarlyIsNotGone) {
  Start();
  Client client(server_->port());
  client.Send(std::string(kWait) + kGet);
  handler_.WaitFor(1);
  handler_.Release();
  EXPECT_THAT(client.Read(), HasSubstr("released"));
  EXPECT_THAT(client.Read(), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(handler_.gone, 0);
}

TEST_F(HttpServerTest, AClientThatSentTheNextRequestEarlyAndLeavesIsGone) {
  Start();
  Client client(server_->port());
  client.Send(std::string(kWait) + kGet);
  handler_.WaitFor(1);
  client.Send(kGet);
  client.Close();
  while (handler_.gone == 0) std::this_thread::sleep_for(milliseconds(1));
}

TEST_F(HttpServerTest, ManyRequestsThatCameEarlyAreAnsweredInOrder) {
  Start();
  Client client(server_->port());
  client.Send(kWait);
  handler_.WaitFor(1);
  constexpr int kMany = 100;
  for (int i = 0; i < kMany; ++i)
    client.Send(Post("/", std::to_string(i) + std::string(2000, ' ')));
  handler_.Release();
  EXPECT_THAT(client.Read(), HasSubstr("released"));
  for (int i = 0; i < kMany; ++i)
    EXPECT_THAT(client.Read(), HasSubstr("\r\n\r\n" + std::to_string(i) + " "));
}

TEST_F(HttpServerTest, ClosesAConnectionWhoseHeadDoesNotCome) {
  options_.head_timeout = milliseconds(100);
  Start();
  Client client(server_->port());
  client.Send("GET / HT");
  EXPECT_EQ(client.ReadAll(), "");
}

TEST_F(HttpServerTest, ClosesAnIdleConnection) {
  options_.idle_timeout = milliseconds(100);
  Start();
  Client client(server_->port());
  client.Send(kGet);
  EXPECT_THAT(client.Read(), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(client.ReadAll(), "");
}

TEST_F(HttpServerTest, GivesUpABodyThatComesTooSlowly) {
  options_.slow_grace = milliseconds(200);
  options_.min_bytes_per_second = 1 << 20;
  Start();
  Client client(server_->port());
  client.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhello");
  const std::string answer = client.ReadAll();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 504"));
  EXPECT_THAT(answer, HasSubstr("DEADLINE_EXCEEDED"));
}

TEST_F(HttpServerTest, CutsAReaderThatIsTooSlow) {
  options_.slow_grace = milliseconds(200);
  options_.min_bytes_per_second = uint64_t{1} << 40;
  Start();
  Client client(server_->port());
  client.Send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
  std::this_thread::sleep_for(seconds(1));
  EXPECT_LT(client.ReadAll().size(), size_t{100} << 20);
}

TEST_F(HttpServerTest, StopWaitsForTheAnswerOfARequestThatRuns) {
  Start();
  Client client(server_->port());
  client.Send(kWait);
  handler_.WaitFor(1);
  std::thread stopper(
      [this] { EXPECT_TRUE(server_->Stop(SteadyClock().Now() + seconds(60)).ok()); });
  while (!RefusesConnections()) std::this_thread::sleep_for(milliseconds(1));
  handler_.Release();
  stopper.join();
  const std::string answer = client.ReadAll();
  EXPECT_THAT(answer, HasSubstr("released"));
  EXPECT_THAT(answer, HasSubstr("Connection: close"));
}

TEST_F(HttpServerTest, StopCutsWhatDoesNotEndInTime) {
  Start();
  Client client(server_->port());
  client.Send(kWait);
  handler_.WaitFor(1);
  EXPECT_EQ(server_->Stop(SteadyClock().Now() + milliseconds(50)).code(),
            StatusCode::kDeadlineExceeded);
  EXPECT_EQ(client.ReadAll(), "");
  EXPECT_EQ(handler_.gone, 1);
  handler_.Release();
}

TEST_F(HttpServerTest, StopEndsIdleConnectionsAtOnce) {
  Start();
  Client client(server_->port());
  client.Send(kGet);
  client.Read();
  EXPECT_TRUE(server_->Stop(SteadyClock().Now() + seconds(60)).ok());
  EXPECT_EQ(client.ReadAll(), "");
}

TEST_F(HttpServerTest, NamesAnAddressThatItCannotHave) {
  Start();
  HttpServerOptions options;
  options.port = server_->port();
  const Status busy = HttpServer::Start(options, &handler_).status();
  EXPECT_EQ(busy.code(), StatusCode::kUnavailable);
  EXPECT_THAT(busy.message(), HasSubstr(std::to_string(server_->port())));
  options.host = "nowhere.example";
  EXPECT_THAT(HttpServer::Start(options, &handler_).status().message(),
              HasSubstr("nowhere.example"));
}

}  // namespace
}  // namespace embercache
