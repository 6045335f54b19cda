// Invariants:
// 1. A request that was sent ends with its answer or with the host: memory that it names is not
//    used by the bridge after Ask has returned, unless the answer itself says that it may be.
// 2. host_ is signalled only before it is reaped, so that the pid is its own.

#include "src/store/mooncake/bridge.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <numeric>
#include <utility>

#include "src/base/log.h"
#include "src/store/mooncake/embedded_program.h"
#include "src/store/mooncake/process.h"
#include "src/store/mooncake/thread_host.h"
#include "src/store/mooncake/wheel_script.h"

namespace embercache::mooncake {
namespace {

// Requests at once.
constexpr size_t kChannels = 8;
constexpr size_t kMaxPartsInFlight = 1024;
constexpr Duration kControlAllowance = std::chrono::seconds(30);

// Their defaults are 30 s and 60 s, and no call can be given a deadline.
const std::string kEnvironment[] = {
    "MC_RPC_TIMEOUT_MS=5000",
    "MC_TCP_STATUS_TIMEOUT_SEC=5",
    "MC_TCP_PROGRESS_TIMEOUT_SEC=5",
    "MC_STORE_CLIENT_SETUP_RETRIES=1",
#ifdef __SANITIZE_THREAD__
    // The order of its threads is made by this process, which theirs does not see.
    "TSAN_OPTIONS=report_bugs=0",
#endif
};

template <typename Number>
void Append(std::vector<std::byte>& body, Number number) {
  const auto bytes = std::as_bytes(std::span(&number, 1));
  body.insert(body.end(), bytes.begin(), bytes.end());
}

// Lengths of the keys, numbers of parts, addresses, sizes, keys.
std::vector<std::byte> Encode(std::span<const Request> requests, size_t num_parts) {
  std::vector<std::byte> body;
  body.reserve(requests.size() * 80 + num_parts * 16);
  for (const Request& request : requests) Append(body, static_cast<uint32_t>(request.key.size()));
  for (const Request& request : requests) Append(body, static_cast<uint32_t>(request.parts.size()));
  for (const Request& request : requests) {
    for (const Part& part : request.parts) Append(body, part.address);
  }
  for (const Request& request : requests) {
    for (const Part& part : request.parts) Append(body, part.size);
  }
  for (const Request& request : requests) {
    const auto key = std::as_bytes(std::span(request.key));
    body.insert(body.end(), key.begin(), key.end());
  }
  return body;
}

size_t PartsOf(std::span<const Request> requests) {
  return std::accumulate(
      requests.begin(), requests.end(), size_t{0},
      [](size_t sum, const Request& request) { return sum + request.parts.size(); });
}

// Only in a process of its own: the environment of this one is the program's.
Result<std::unique_ptr<Host>> StartProcess(const MooncakeConfig& config, Way way,
                                           const Descriptor& control) {
  const bool wheel = way == Way::kWheel;
  std::vector<std::string> environment(std::begin(kEnvironment), std::end(kEnvironment));
  if (!wheel && config.protocol == "tcp") environment.emplace_back("MC_FORCE_TCP=1");
  const std::string program = wheel ? config.python : kFilePath;
  std::vector<std::string> words = {wheel ? program : "embercache-mooncake-bridge"};
  if (wheel) words.emplace_back(kFilePath);
  EMBERCACHE_ASSIGN_OR_RETURN(const Descriptor file,
                              MakeFile(wheel ? WheelScript() : BridgeProgram()));
  return Process::Start(program, words, control.get(), file.get(), environment,
                        Log().should_log(spdlog::level::debug));
}

Result<std::unique_ptr<Host>> StartHost(const MooncakeConfig& config, Way way, Descriptor control) {
  if (way == Way::kInProcess) return ThreadHost::Start(std::move(control));
  return StartProcess(config, way, control);
}

bool HasEnded(int end_fd) {
  pollfd poll_fd = {end_fd, POLLIN, 0};
  return poll(&poll_fd, 1, 0) > 0;
}

}  // namespace

Result<std::shared_ptr<const Region>> Region::Of(const BufferRegion& region) {
  auto made = std::make_shared<Region>();
  made->region = region;
  made->file = Descriptor(fcntl(region.fd, F_DUPFD_CLOEXEC, 3));
  if (made->file.get() < 0) return Status::FromErrno(errno, "mooncake: a region's descriptor");
  return std::shared_ptr<const Region>(std::move(made));
}

bool Region::Holds(ConstBuffer memory) const {
  const MutableBuffer& own = region.memory;
  return memory.data() >= own.data() && memory.size() <= own.size() &&
         static_cast<size_t>(memory.data() - own.data()) <= own.size() - memory.size();
}

Result<std::shared_ptr<Bridge>> Bridge::Start(const MooncakeConfig& config, Way way, int wake_fd) {
  EMBERCACHE_ASSIGN_OR_RETURN(SocketPair control, MakeSocketPair());
  EMBERCACHE_ASSIGN_OR_RETURN(std::unique_ptr<Host> host,
                              StartHost(config, way, std::move(control.theirs)));
  return std::shared_ptr<Bridge>(
      new Bridge(config, way, std::move(host), std::move(control.ours), wake_fd));
}

Bridge::Bridge(const MooncakeConfig& config, Way way, std::unique_ptr<Host> host,
               Descriptor control, int wake_fd)
    : config_(config),
      way_(way),
      wake_fd_(wake_fd),
      host_(std::move(host)),
      control_(std::move(control)) {}

Bridge::~Bridge() {
  End(Duration(0));
}

Result<Answer> Bridge::AskControl(Op op, std::span<const std::byte> body, int fd,
                                  Duration allowance) {
  return control_.Ask(op, 0, body, fd, SteadyClock().Now() + allowance);
}

Result<std::string> Bridge::SetUp(Duration allowance) {
  const std::string json = config_.SetUpJson();
  EMBERCACHE_ASSIGN_OR_RETURN(
      Answer answer, AskControl(Op::kSetUp, std::as_bytes(std::span(json)), -1, allowance));
  return std::move(answer.text);
}

Status Bridge::OpenChannels() {
  for (size_t i = 0; i < kChannels; ++i) {
    EMBERCACHE_ASSIGN_OR_RETURN(SocketPair pair, MakeSocketPair());
    EMBERCACHE_RETURN_IF_ERROR(
        AskControl(Op::kChannel, {}, pair.theirs.get(), kControlAllowance).status());
    MutexLock lock(mutex_);
    free_channels_.push_back(std::make_unique<Channel>(std::move(pair.ours)));
  }
  return Status::Ok();
}

Status Bridge::Map(std::shared_ptr<const Region> region) {
  // The file is mapped from its start, so that any offset will do.
  const uint64_t bytes = region->region.fd_offset + region->region.memory.size();
  EMBERCACHE_ASSIGN_OR_RETURN(const Answer answer,
                              AskControl(Op::kMap, std::as_bytes(std::span(&bytes, 1)),
                                         region->file.get(), kControlAllowance));
  if (answer.numbers.size() != 2) return Status::Internal("the bridge's map answers no address");
  if (answer.numbers[0] != 0) {
    return Status::Unavailable(
        fmt::format("registering {} bytes of memory answers {}", bytes, answer.numbers[0]));
  }
  MutexLock lock(mutex_);
  const auto address = static_cast<uint64_t>(answer.numbers[1]);
  mappings_.push_back({std::move(region), address});
  return Status::Ok();
}

void Bridge::Unmap(const Region& region) {
  const auto mapped = AddressOf(region);
  if (!mapped) return;
  {
    MutexLock lock(mutex_);
    std::erase_if(mappings_, [&](const Mapping& known) { return known.region.get() == &region; });
  }
  const uint64_t address = *mapped - region.region.fd_offset;
  const auto answer =
      AskControl(Op::kUnmap, std::as_bytes(std::span(&address, 1)), -1, kControlAllowance);
  if (!answer.ok()) Retire("unmapping memory: " + answer.status().message());
}

std::string Bridge::End(Duration grace) {
  Retire("it is being ended");
  const TimePoint give_up = SteadyClock().Now() + grace;
  MutexLock lock(mutex_);
  if (reaped_) return end_;
  while (in_flight_ > 0 && !HasEnded(host_->end_fd())) {
    if (!changed_.WaitUntil(mutex_, give_up)) break;
  }
  host_->Kill();
  lock.Unlock();
  std::string end = host_->Reap();  // under no lock: it takes as long as the kernel takes
  lock.Lock();
  reaped_ = true;
  end_ = std::move(end);
  changed_.NotifyAll();
  return end_;
}

void Bridge::Kill() {
  MutexLock lock(mutex_);
  if (!reaped_) host_->Kill();
}

std::optional<uint64_t> Bridge::AddressOf(const Region& region) const {
  MutexLock lock(mutex_);
  for (const Mapping& mapping : mappings_) {
    if (mapping.region.get() == &region) return mapping.address + region.region.fd_offset;
  }
  return std::nullopt;
}

Result<std::unique_ptr<Channel>> Bridge::TakeChannel(size_t parts, TimePoint deadline) {
  MutexLock lock(mutex_);
  while (!retired_ && (free_channels_.empty() || parts_in_flight_ + parts > kMaxPartsInFlight)) {
    if (!changed_.WaitUntil(mutex_, deadline)) {
      return Status::DeadlineExceeded("all of the bridge's channels are busy");
    }
  }
  if (retired_) return Status::Unavailable("the Mooncake client is being replaced: " + reason_);
  std::unique_ptr<Channel> channel = std::move(free_channels_.back());
  free_channels_.pop_back();
  ++in_flight_;
  parts_in_flight_ += parts;
  return channel;
}

void Bridge::ReturnChannel(std::unique_ptr<Channel> channel, size_t parts) {
  MutexLock lock(mutex_);
  if (channel != nullptr) free_channels_.push_back(std::move(channel));
  --in_flight_;
  parts_in_flight_ -= parts;
  changed_.NotifyAll();
}

Result<std::vector<int64_t>> Bridge::Try(Op op, std::span<const Request> requests,
                                         TimePoint deadline, bool& sent) {
  const size_t parts = PartsOf(requests);
  const std::vector<std::byte> body = Encode(requests, parts);
  EMBERCACHE_ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel, TakeChannel(parts, deadline));
  sent = true;
  auto answer = channel->Ask(op, static_cast<uint32_t>(requests.size()), body, -1,
                             SteadyClock().Now() + config_.bridge_timeout);
  Status failure = answer.status();
  if (answer.ok() && answer->numbers.size() != requests.size()) {
    failure = Status::Internal(fmt::format("the Mooncake client answers {} of {} items",
                                           answer->numbers.size(), requests.size()));
  }
  if (failure.ok()) {
    ReturnChannel(std::move(channel), parts);
    return std::move(answer->numbers);
  }
  ReturnChannel(nullptr, parts);
  std::string reason = failure.message();
  if (failure.code() == StatusCode::kDeadlineExceeded) {
    Kill();
    reason = "the bridge did not answer in time, and was killed";
  }
  failure = Status::Unavailable(std::move(reason));  // what it has done by then is not known
  Retire(failure.message());
  return failure;
}

Result<std::vector<int64_t>> Bridge::Try(Op op, std::span<const Request> requests,
                                         TimePoint deadline) {
  bool sent = false;
  return Try(op, requests, deadline, sent);
}

Result<std::vector<int64_t>> Bridge::Ask(Op op, std::span<const Request> requests,
                                         TimePoint deadline) {
  bool sent = false;
  auto answer = Try(op, requests, deadline, sent);
  // What it does to the memory meanwhile is not known.
  if (!answer.ok() && sent) WaitUntilReaped();
  return answer;
}

void Bridge::Retire(std::string reason) {
  MutexLock lock(mutex_);
  if (retired_) return;
  retired_ = true;
  reason_ = std::move(reason);
  changed_.NotifyAll();
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof one);
}

bool Bridge::retired() const {
  MutexLock lock(mutex_);
  return retired_;
}

std::string Bridge::reason() const {
  MutexLock lock(mutex_);
  return reason_;
}

void Bridge::WaitUntilReaped() {
  MutexLock lock(mutex_);
  while (!reaped_) changed_.Wait(mutex_);
}

}  // namespace embercache::mooncake
