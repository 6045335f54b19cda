#include "src/server/http_server.h"

#include <fmt/format.h>
#include <pthread.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <thread>
#include <unordered_set>

#include "src/base/log.h"
#include "src/base/mutex.h"
#include "src/server/http_session.h"

// The io_context lives as long as the Impl, and the Impl until every session has ended: Stop aborts
// those that do not end by themselves.

namespace embercache {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Tcp = asio::ip::tcp;

constexpr auto kToken = asio::as_tuple(asio::use_awaitable);
// Connections beyond the limit that may be told so at a time; more are closed without a word.
constexpr size_t kMaxRefusals = 64;
// For sessions that were cut, and for accept when descriptors ran out.
constexpr Duration kShortWait = std::chrono::milliseconds(50);

asio::ip::address AddressOf(const std::string& host, error_code& error) {
  return asio::ip::make_address(host == "localhost" ? std::string("127.0.0.1") : host, error);
}

}  // namespace

bool IsListenAddress(const std::string& host) {
  error_code error;
  (void)AddressOf(host, error);
  return !error;
}

struct HttpServer::Impl : std::enable_shared_from_this<HttpServer::Impl> {
  explicit Impl(const HttpServerOptions& options, HttpHandler* handler)
      : context(std::make_shared<HttpContext>(HttpContext{
            options, handler, std::make_shared<BodyBudget>(options.max_bodies_bytes)})) {}

  Status Bind();
  void Launch();
  asio::awaitable<void> Accept();
  void Add(Tcp::socket socket);
  // Ends the connection that has waited for a request for the longest. False when none waits.
  bool DrainLongestIdle() REQUIRES(mutex);
  void Remove(const std::shared_ptr<HttpSession>& session);
  // False when sessions are left at `deadline`.
  bool WaitForSessions(TimePoint deadline);

  asio::io_context io;
  const std::shared_ptr<HttpContext> context;
  Tcp::acceptor acceptor{asio::make_strand(io)};
  uint16_t bound_port = 0;
  std::vector<std::thread> threads;

  Mutex mutex;
  CondVar session_ended;
  std::unordered_set<std::shared_ptr<HttpSession>> sessions GUARDED_BY(mutex);
  bool stopping GUARDED_BY(mutex) = false;
};

Status HttpServer::Impl::Bind() {
  const HttpServerOptions& options = context->options;
  error_code error;
  const asio::ip::address address = AddressOf(options.host, error);
  if (error) {
    return Status::Invalid(fmt::format("--host '{}' is not an IP address", options.host));
  }
  const Tcp::endpoint endpoint(address, options.port);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(Tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    return Status::Unavailable(fmt::format("cannot listen on {} port {}: {}", options.host,
                                           options.port, error.message()));
  }
  bound_port = acceptor.local_endpoint().port();
  return Status::Ok();
}

void HttpServer::Impl::Launch() {
  asio::co_spawn(acceptor.get_executor(), Accept(), asio::detached);
  for (size_t i = 0; i < context->options.threads; ++i) {
    threads.emplace_back([this] { io.run(); });
    pthread_setname_np(threads.back().native_handle(), "http");
  }
}

asio::awaitable<void> HttpServer::Impl::Accept() {
  asio::steady_timer pause(acceptor.get_executor());
  while (acceptor.is_open()) {
    auto [error, socket] = co_await acceptor.async_accept(asio::make_strand(io), kToken);
    if (error == asio::error::operation_aborted) break;
    if (error) {
      static LogLimiter limiter;
      if (const uint64_t times = limiter.Admit(SteadyClock().Now())) {
        LOG_WARNING("cannot accept a connection: {} (times: {})", error.message(), times);
      }
      if (error == asio::error::no_descriptors) {
        MutexLock lock(mutex);
        (void)DrainLongestIdle();
      }
      pause.expires_after(kShortWait);
      (void)co_await pause.async_wait(kToken);
      continue;
    }
    Add(std::move(socket));
  }
}

bool HttpServer::Impl::DrainLongestIdle() {
  std::shared_ptr<HttpSession> longest;
  TimePoint since = TimePoint::max();
  for (const auto& session : sessions) {
    const TimePoint idle_since = session->idle_since();
    if (idle_since >= since) continue;
    since = idle_since;
    longest = session;
  }
  if (longest) longest->Drain();
  return longest != nullptr;
}

// At the limit a connection without a request makes room for the new one, which is refused where
// there is none such. The one that goes may take a moment to do so.
void HttpServer::Impl::Add(Tcp::socket socket) {
  const auto executor = socket.get_executor();
  const auto session = std::make_shared<HttpSession>(std::move(socket), context);
  bool refuse;
  {
    MutexLock lock(mutex);
    if (stopping) return;
    const size_t most = context->options.max_connections;
    if (sessions.size() >= most + kMaxRefusals) return;
    refuse = sessions.size() >= most && !DrainLongestIdle();
    sessions.insert(session);
  }
  asio::co_spawn(executor, refuse ? session->Refuse() : session->Run(),
                 [this, session](const std::exception_ptr& thrown) {
                   if (thrown) LOG_ERROR("a connection ended with an exception");
                   Remove(session);
                 });
}

void HttpServer::Impl::Remove(const std::shared_ptr<HttpSession>& session) {
  MutexLock lock(mutex);
  sessions.erase(session);
  session_ended.NotifyAll();
}

bool HttpServer::Impl::WaitForSessions(TimePoint deadline) {
  MutexLock lock(mutex);
  while (!sessions.empty()) {
    if (!session_ended.WaitUntil(mutex, deadline) && !sessions.empty()) return false;
  }
  return true;
}

Result<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options,
                                                      HttpHandler* handler) {
  auto impl = std::make_shared<Impl>(options, handler);
  EMBERCACHE_RETURN_IF_ERROR(impl->Bind());
  impl->Launch();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::~HttpServer() {
  (void)Stop(SteadyClock().Now());
}

uint16_t HttpServer::port() const {
  return impl_->bound_port;
}

Status HttpServer::Stop(TimePoint deadline) {
  std::vector<std::shared_ptr<HttpSession>> sessions;
  {
    MutexLock lock(impl_->mutex);
    if (impl_->stopping) return Status::Ok();
    impl_->stopping = true;
    sessions.assign(impl_->sessions.begin(), impl_->sessions.end());
  }
  // Not the Impl: a handler that is never run stays in its io_context, which would keep both.
  asio::post(impl_->acceptor.get_executor(), [acceptor = &impl_->acceptor] {
    error_code ignored;
    acceptor->close(ignored);
  });
  for (const auto& session : sessions) session->Drain();
  const bool all_ended = impl_->WaitForSessions(deadline);
  if (!all_ended) {
    for (const auto& session : sessions) session->Abort();
    (void)impl_->WaitForSessions(SteadyClock().Now() + std::chrono::seconds(1));
  }
  sessions.clear();
  impl_->io.stop();
  for (std::thread& thread : impl_->threads) thread.join();
  return all_ended ? Status::Ok() : Status::DeadlineExceeded("connections were cut");
}

}  // namespace embercache
