// The redis backend against hiredis, and against a bare socket between two processes, in one run:
//
//   redis_bench PORT [ROUNDS]
//
// PORT is that of a server on 127.0.0.1 whose keys may be overwritten. The rounds of all clients
// alternate; a line of the table gives their median. bench/redis/run starts a server, adds
// redis-py, and prints the whole comparison.

#include <arpa/inet.h>
#include <fmt/format.h>
#include <hiredis/hiredis.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxh_x86dispatch.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/cache/envelope.h"
#include "src/store/redis/redis_store.h"
#include "src/store/store_call.h"

namespace embercache {
namespace {

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * 1024;
constexpr size_t kPageBytes = 256 * kKiB;
constexpr size_t kRoundBytes = 256 * kMiB;

[[noreturn]] void Fail(std::string_view what) {
  fmt::print(stderr, "redis_bench: {}\n", what);
  std::exit(1);
}

// An object's memory, in pages that do not touch each other.
class Pages {
 public:
  explicit Pages(size_t bytes) : memory_(2 * bytes + kPageBytes, std::byte{7}) {
    for (size_t at = 0; at < bytes; at += kPageBytes) {
      buffers_.push_back(std::span(memory_).subspan(2 * at, std::min(kPageBytes, bytes - at)));
    }
    sources_.assign(buffers_.begin(), buffers_.end());
  }
  std::span<const MutableBuffer> buffers() const { return buffers_; }
  std::span<const ConstBuffer> sources() const { return sources_; }
  void CopyFrom(const char* data) {
    for (const MutableBuffer& page : buffers_) {
      std::memcpy(page.data(), data, page.size());
      data += page.size();
    }
  }
  void CopyTo(char* data) const {
    for (const MutableBuffer& page : buffers_) {
      std::memcpy(data, page.data(), page.size());
      data += page.size();
    }
  }
  uint64_t Hash() const {
    const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                         XXH3_freeState);
    XXH3_128bits_reset(state.get());
    for (const MutableBuffer& page : buffers_) {
      XXH3_128bits_update(state.get(), page.data(), page.size());
    }
    return XXH3_128bits_digest(state.get()).low64;
  }

 private:
  std::vector<std::byte> memory_;
  std::vector<MutableBuffer> buffers_;
  std::vector<ConstBuffer> sources_;
};

struct Shape {
  size_t bytes;
  size_t batch;
};

std::string KeyOf(size_t item) {
  return fmt::format("emb_{:064x}", item);
}

// One way to move objects. Each call moves one batch.
class Contender {
 public:
  virtual ~Contender() = default;
  virtual std::string_view name() const = 0;
  virtual void Prepare(const Shape& shape) = 0;
  virtual void Get() = 0;
  virtual void Set() = 0;
  // Between timed calls.
  virtual void Forget() {}
};

class Ours final : public Contender {
 public:
  Ours(int port, bool verify) : verify_(verify) {
    StoreConfig config;
    config.json = fmt::format(R"({{"url":"redis://127.0.0.1:{}"}})", port);
    auto store = CreateRedisStore(config);
    if (!store.ok()) Fail(store.status().ToString());
    store_ = std::move(*store);
  }
  std::string_view name() const override { return verify_ ? "ours+xxh3" : "ours"; }

  void Prepare(const Shape& shape) override {
    pages_.clear();
    keys_.clear();
    for (size_t i = 0; i < shape.batch; ++i) {
      pages_.emplace_back(shape.bytes);
      keys_.push_back(KeyOf(i));
    }
    gets_.clear();
    puts_.clear();
    removals_.clear();
    for (size_t i = 0; i < shape.batch; ++i) {
      gets_.push_back({keys_[i], pages_[i].buffers()});
      puts_.push_back({keys_[i], pages_[i].sources(), PutMode::kIfAbsent});
      removals_.push_back({keys_[i], {}});
    }
    Forget();
    Set();
  }
  // Hashed as it comes, as the layer above the store does.
  void Get() override {
    std::vector<RunningChecksum> checksums(pages_.size());
    const std::function<void(size_t, uint64_t)> received = [&](size_t i, uint64_t bytes) {
      checksums[i].ExtendTo(pages_[i].sources(), bytes);
    };
    CallContext context;
    if (verify_) context.received = &received;
    for (const GetResult& result : store_->BatchGetIntoMultiBuffers(gets_, context)) {
      if (result.outcome != GetOutcome::kHit) Fail(result.status.ToString());
    }
    for (size_t i = 0; verify_ && i < pages_.size(); ++i) {
      checksums[i].ExtendTo(pages_[i].sources(), TotalBytes(pages_[i].sources()));
      checksum_ += checksums[i].Finish().low;
    }
  }
  void Set() override {
    if (verify_) Verify();
    for (const PutResult& result : store_->BatchPutFromMultiBuffers(puts_, {})) {
      if (result.outcome != PutOutcome::kStored) Fail(result.status.ToString());
    }
  }
  void Forget() override { (void)store_->BatchRemove(removals_, {}); }

 private:
  void Verify() {
    for (const Pages& pages : pages_) checksum_ += pages.Hash();
  }

  const bool verify_;
  std::unique_ptr<EmbeddingStore> store_;
  std::vector<Pages> pages_;
  std::vector<std::string> keys_;
  std::vector<GetItem> gets_;
  std::vector<PutItem> puts_;
  std::vector<RemoveItem> removals_;
  uint64_t checksum_ = 0;
};

class Hiredis final : public Contender {
 public:
  explicit Hiredis(int port) : context_(redisConnect("127.0.0.1", port)) {
    if (context_ == nullptr || context_->err != 0) Fail("hiredis: no connection");
  }
  ~Hiredis() override { redisFree(context_); }
  std::string_view name() const override { return "hiredis"; }

  void Prepare(const Shape& shape) override {
    pages_.clear();
    keys_.clear();
    for (size_t i = 0; i < shape.batch; ++i) {
      pages_.emplace_back(shape.bytes);
      keys_.push_back("plain_" + KeyOf(i));
    }
    value_.assign(shape.bytes, 'v');
    Set();
  }
  void Get() override {
    for (const std::string& key : keys_) redisAppendCommand(context_, "GET %s", key.c_str());
    for (Pages& pages : pages_) {
      redisReply* const reply = Read();
      if (reply->len != value_.size()) Fail("hiredis: a short value");
      pages.CopyFrom(reply->str);
      freeReplyObject(reply);
    }
  }
  // hiredis takes contiguous memory alone, so the pages are copied first.
  void Set() override {
    for (size_t i = 0; i < keys_.size(); ++i) {
      pages_[i].CopyTo(value_.data());
      redisAppendCommand(context_, "SET %s %b", keys_[i].c_str(), value_.data(), value_.size());
    }
    for (size_t i = 0; i < keys_.size(); ++i) freeReplyObject(Read());
  }
  void Forget() override {
    for (const std::string& key : keys_) redisAppendCommand(context_, "DEL %s", key.c_str());
    for (size_t i = 0; i < keys_.size(); ++i) freeReplyObject(Read());
  }

 private:
  redisReply* Read() {
    void* reply = nullptr;
    if (redisGetReply(context_, &reply) != REDIS_OK) Fail("hiredis: no reply");
    return static_cast<redisReply*>(reply);
  }

  redisContext* const context_;
  std::vector<Pages> pages_;
  std::vector<std::string> keys_;
  std::string value_;
};

void MoveAll(int fd, std::vector<iovec> pieces, bool receive) {
  for (size_t first = 0; first < pieces.size();) {
    const int count = static_cast<int>(std::min<size_t>(pieces.size() - first, 512));
    ssize_t moved = receive ? readv(fd, &pieces[first], count) : writev(fd, &pieces[first], count);
    if (moved <= 0) Fail("bare socket: the other side is gone");
    while (moved > 0) {
      const size_t step = std::min(static_cast<size_t>(moved), pieces[first].iov_len);
      pieces[first].iov_base = static_cast<char*>(pieces[first].iov_base) + step;
      pieces[first].iov_len -= step;
      moved -= static_cast<ssize_t>(step);
      if (pieces[first].iov_len == 0) ++first;
    }
  }
}

// What the machine gives: a process that answers any 16 bytes with the payload, or takes the
// payload and answers 16 bytes.
class BareSocket final : public Contender {
 public:
  ~BareSocket() override { Stop(); }
  std::string_view name() const override { return "bare socket"; }

  void Prepare(const Shape& shape) override {
    Stop();
    pages_.clear();
    for (size_t i = 0; i < shape.batch; ++i) pages_.emplace_back(shape.bytes);
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* const where = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener, where, length) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, where, &length) != 0) {
      Fail("bare socket: no port");
    }
    server_ = fork();
    if (server_ == 0) Serve(accept(listener, nullptr, nullptr), shape.bytes * shape.batch);
    close(listener);
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(fd_, where, length) != 0) Fail("bare socket: no connection");
  }
  void Get() override {
    Tell('g');
    MoveAll(fd_, Pieces(), true);
  }
  void Set() override {
    Tell('s');
    MoveAll(fd_, Pieces(), false);
    char answer[16];
    MoveAll(fd_, {{answer, sizeof(answer)}}, true);
  }

 private:
  [[noreturn]] static void Serve(int fd, size_t bytes) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    std::vector<char> payload(bytes, 'b');
    char head[16];
    while (recv(fd, head, sizeof(head), MSG_WAITALL) == sizeof(head)) {
      const bool get = head[0] == 'g';
      MoveAll(fd, {{payload.data(), bytes}}, !get);
      if (!get) MoveAll(fd, {{head, sizeof(head)}}, false);
    }
    _exit(0);
  }
  void Tell(char what) {
    char head[16] = {what};
    MoveAll(fd_, {{head, sizeof(head)}}, false);
  }
  std::vector<iovec> Pieces() const {
    std::vector<iovec> pieces;
    for (const Pages& object : pages_) {
      for (const MutableBuffer& page : object.buffers()) {
        pieces.push_back({page.data(), page.size()});
      }
    }
    return pieces;
  }
  void Stop() {
    if (server_ <= 0) return;
    close(fd_);
    waitpid(server_, nullptr, 0);
    server_ = -1;
  }

  pid_t server_ = -1;
  int fd_ = -1;
  std::vector<Pages> pages_;
};

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Measure {
  double gb_per_s;
  double cpu_s_per_gib;
};

Measure Time(Contender& contender, const Shape& shape, bool get) {
  const size_t batch_bytes = shape.bytes * shape.batch;
  const size_t batches = std::clamp<size_t>(kRoundBytes / batch_bytes, 4, 400);
  double seconds = 0, cpu = 0;
  for (size_t i = 0; i < batches; ++i) {
    if (!get) contender.Forget();
    const double cpu_before = CpuSeconds();
    const auto start = std::chrono::steady_clock::now();
    get ? contender.Get() : contender.Set();
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    cpu += CpuSeconds() - cpu_before;
  }
  const auto bytes = static_cast<double>(batches * batch_bytes);
  return {bytes / seconds * 1e-9, cpu / bytes * static_cast<double>(1 << 30)};
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Compare(std::vector<std::unique_ptr<Contender>>& contenders, const Shape& shape, bool get,
             int rounds) {
  std::vector<std::vector<double>> rates(contenders.size()), costs(contenders.size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < contenders.size(); ++i) {
      const Measure measure = Time(*contenders[i], shape, get);
      rates[i].push_back(measure.gb_per_s);
      costs[i].push_back(measure.cpu_s_per_gib);
    }
  }
  for (size_t i = 0; i < contenders.size(); ++i) {
    fmt::print("{}\t{}\t{}\t{}\t{:.3f}\t{:.3f}\n", get ? "GET" : "SET", shape.bytes / kKiB,
               shape.batch, contenders[i]->name(), Median(rates[i]), Median(costs[i]));
  }
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  if (argc < 2) Fail("usage: redis_bench PORT [ROUNDS]");
  const int port = std::atoi(argv[1]);
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  std::vector<std::unique_ptr<Contender>> contenders;
  contenders.push_back(std::make_unique<BareSocket>());
  contenders.push_back(std::make_unique<Hiredis>(port));
  contenders.push_back(std::make_unique<Ours>(port, false));
  contenders.push_back(std::make_unique<Ours>(port, true));
  fmt::print("op\tKiB\tbatch\tclient\tGB/s\tCPU s/GiB\n");
  const Shape shapes[] = {{256 * kKiB, 1}, {kMiB, 1},       {4 * kMiB, 1},
                          {16 * kMiB, 1},  {256 * kKiB, 4}, {kMiB, 4}};
  for (const Shape& shape : shapes) {
    for (auto& contender : contenders) contender->Prepare(shape);
    for (const bool get : {true, false}) Compare(contenders, shape, get, rounds);
  }
  return 0;
}

}  // namespace
}  // namespace embercache

int main(int argc, char** argv) {
  return embercache::Main(argc, argv);
}
