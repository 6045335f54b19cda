// Invariants:
// 1. current_ is a bridge whose client has been set up; anyone may hold it longer, retired or not.
// 2. Each bridge is reaped before the next one starts.
// 3. ways_[way_] is the way of the bridge of now, or of the next one.

#include "src/store/mooncake/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "src/base/log.h"
#include "src/store/mooncake/self_test.h"

namespace embercache::mooncake {
namespace {

constexpr uint64_t kBounceBytes = 64ULL << 20;
// A client's set-up without a master takes so long by its own defaults.
constexpr Duration kSetUpAllowance = std::chrono::seconds(90);
// For the other requests of a bridge that is to be replaced.
constexpr Duration kGrace = std::chrono::seconds(2);
// A client in service for so long has proved itself: the next one starts at once.
constexpr Duration kSettled = std::chrono::seconds(30);
constexpr Duration kFirstPause = std::chrono::milliseconds(250);
constexpr Duration kLongestPause = std::chrono::seconds(15);
constexpr Duration kTestAgain = std::chrono::seconds(2);
// For a client in this process to end.
constexpr Duration kEndAllowance = std::chrono::seconds(5);
constexpr Duration kForever = std::chrono::hours(1);

}  // namespace

Result<std::unique_ptr<Supervisor>> Supervisor::Start(MooncakeConfig config) {
  EMBERCACHE_ASSIGN_OR_RETURN(auto bounce,
                              BounceArea::Create(kSelfTestBytes + kBounceBytes, kBounceBytes));
  EMBERCACHE_ASSIGN_OR_RETURN(auto region, Region::Of(bounce->region()));
  EMBERCACHE_ASSIGN_OR_RETURN(BouncePiece test_memory,
                              bounce->Take(kSelfTestBytes, SteadyClock().Now()));
  Descriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake.get() < 0) return Status::FromErrno(errno, "mooncake: eventfd");
  return std::unique_ptr<Supervisor>(new Supervisor(std::move(config), std::move(bounce),
                                                    std::move(region), std::move(test_memory),
                                                    std::move(wake)));
}

Supervisor::Supervisor(MooncakeConfig config, std::unique_ptr<BounceArea> bounce,
                       std::shared_ptr<const Region> bounce_region, BouncePiece test_memory,
                       Descriptor wake)
    : config_(std::move(config)),
      bounce_(std::move(bounce)),
      bounce_region_(std::move(bounce_region)),
      test_memory_(std::move(test_memory)),
      wake_(std::move(wake)),
      random_(std::random_device()()),
      ways_(config_.Ways()),
      health_{StoreState::kStarting, "the Mooncake client is being set up"},
      thread_([this] { Run(); }) {}

Supervisor::~Supervisor() {
  if (!Stop(SteadyClock().Now() + kEndAllowance)) {
    MutexLock lock(mutex_);
    if (starting_ != nullptr) starting_->Abandon();
  }
  thread_.join();
}

bool Supervisor::Stop(TimePoint deadline) {
  MutexLock lock(mutex_);
  stopping_ = true;
  WakeUp();
  if (starting_ != nullptr) starting_->Kill();
  while (!thread_ended_ && ended_.WaitUntil(mutex_, deadline)) {
  }
  return thread_ended_;
}

Result<std::shared_ptr<Bridge>> Supervisor::Current() {
  MutexLock lock(mutex_);
  if (current_ != nullptr) return current_;
  return Status::Unavailable(health_.detail);
}

StoreHealth Supervisor::health() {
  MutexLock lock(mutex_);
  return health_;
}

InUse Supervisor::in_use() {
  MutexLock lock(mutex_);
  return in_use_;
}

uint64_t Supervisor::era() {
  MutexLock lock(mutex_);
  return era_;
}

bool Supervisor::stopping() {
  MutexLock lock(mutex_);
  return stopping_;
}

Status Supervisor::AddRegion(const BufferRegion& region) {
  EMBERCACHE_ASSIGN_OR_RETURN(auto added, Region::Of(region));
  {
    MutexLock lock(mutex_);
    regions_.push_back(std::move(added));
  }
  WakeUp();
  return Status::Ok();
}

void Supervisor::RemoveRegion(const BufferRegion& region) {
  {
    MutexLock lock(mutex_);
    std::erase_if(regions_, [&](const auto& known) {
      return known->region.memory.data() == region.memory.data() &&
             known->region.memory.size() == region.memory.size();
    });
  }
  WakeUp();
}

std::optional<uint64_t> Supervisor::AddressOf(const Bridge& bridge, ConstBuffer memory) {
  const Region* holder = bounce_region_.get();
  MutexLock lock(mutex_);
  if (!holder->Holds(memory)) {
    const auto found = std::find_if(regions_.begin(), regions_.end(),
                                    [&](const auto& known) { return known->Holds(memory); });
    if (found == regions_.end()) return std::nullopt;
    holder = found->get();
  }
  const auto address = bridge.AddressOf(*holder);
  if (!address) return std::nullopt;
  return *address + static_cast<uint64_t>(memory.data() - holder->region.memory.data());
}

void Supervisor::WakeUp() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
}

bool Supervisor::Sleep(int end_fd, Duration time) {
  pollfd fds[] = {{wake_.get(), POLLIN, 0}, {end_fd, POLLIN, 0}};  // poll passes over -1
  const auto time_ms = std::chrono::ceil<std::chrono::milliseconds>(time).count();
  const int ready = poll(fds, 2, static_cast<int>(std::max<int64_t>(time_ms, 0)));
  uint64_t count = 0;
  if (fds[0].revents != 0) {
    [[maybe_unused]] const ssize_t got = read(wake_.get(), &count, sizeof count);
  }
  return ready != 0;
}

void Supervisor::Run() {
  Duration pause{0};
  while (!stopping()) {
    const TimePoint start = SteadyClock().Now();
    std::string why_not;
    const Life life = RunBridge(ways_[way_], &why_not);
    if (life == Life::kNoSuchClient && TryNextWay(why_not)) continue;
    const bool settled = life == Life::kServed && SteadyClock().Now() - start >= kSettled;
    pause = settled ? Duration(0) : std::clamp(pause * 2, kFirstPause, kLongestPause);
    // Nodes that lost one master together do not come back together.
    const double jitter = std::uniform_real_distribution(0.75, 1.25)(random_);
    const TimePoint next =
        SteadyClock().Now() +
        Duration(static_cast<int64_t>(static_cast<double>(pause.count()) * jitter));
    while (!stopping() && SteadyClock().Now() < next) Sleep(-1, next - SteadyClock().Now());
  }
  MutexLock lock(mutex_);
  thread_ended_ = true;
  ended_.NotifyAll();
}

bool Supervisor::TryNextWay(const std::string& why_not) {
  absent_.push_back(fmt::format("{}: {}", NameOf(ways_[way_]), why_not));
  way_ = (way_ + 1) % ways_.size();
  if (way_ > 0) return true;
  Fail(fmt::format("there is no Mooncake client here: {}", fmt::join(absent_, "; ")));
  absent_.clear();
  return false;
}

void Supervisor::SetDown(const std::string& why) {
  MutexLock lock(mutex_);
  current_ = nullptr;
  if (!stopping_) health_ = {StoreState::kDown, why};
}

void Supervisor::Fail(const std::string& what) {
  SetDown(what);
  if (stopping()) return;
  if (what != last_failure_) LOG_WARNING("mooncake: {}", what);
  last_failure_ = what;
}

Supervisor::Life Supervisor::RunBridge(Way way, std::string* why_not) {
  auto started = Bridge::Start(config_, way, wake_.get());
  if (!started.ok()) {
    *why_not = started.status().message();
    return Life::kNoSuchClient;
  }
  const std::shared_ptr<Bridge> bridge = std::move(*started);
  {
    MutexLock lock(mutex_);
    if (stopping_) return Life::kFailed;
    starting_ = bridge;
    in_use_.way = way;
    in_use_.pid = bridge->pid();
    ++in_use_.starts;
  }
  mapped_.clear();
  const Status set_up = SetUp(*bridge);
  if (set_up.ok()) Watch(bridge);
  const std::string reason = set_up.ok() ? bridge->reason() : set_up.message();
  const bool no_client = set_up.code() == StatusCode::kNotFound;
  if (!no_client) SetDown(reason);
  const std::string end = bridge->End(set_up.ok() && !stopping() ? kGrace : Duration(0));
  {
    MutexLock lock(mutex_);
    starting_ = nullptr;
    in_use_.pid = -1;
  }
  if (no_client) {
    *why_not = reason;
    return Life::kNoSuchClient;
  }
  Fail(fmt::format("the bridge to Mooncake was ended ({}): {}", end, reason));
  return set_up.ok() ? Life::kServed : Life::kFailed;
}

Status Supervisor::SetUp(Bridge& bridge) {
  auto library = bridge.SetUp(kSetUpAllowance);
  if (library.status().code() == StatusCode::kNotFound) return library.status();
  if (!library.ok()) {
    return Status(
        library.status().code(),
        fmt::format("set-up with master {}, protocol {}: {}", config_.master_server_address,
                    config_.protocol, library.status().message()));
  }
  EMBERCACHE_RETURN_IF_ERROR(bridge.OpenChannels());
  EMBERCACHE_RETURN_IF_ERROR(bridge.Map(bounce_region_));
  MapRegions(bridge);
  MutexLock lock(mutex_);
  in_use_.library = std::move(*library);
  absent_.clear();
  return Status::Ok();
}

void Supervisor::Watch(const std::shared_ptr<Bridge>& bridge) {
  bool tested = false;
  while (!stopping() && !bridge->retired()) {
    MapRegions(*bridge);
    if (!tested) {
      const uint64_t address = *AddressOf(*bridge, test_memory_.memory());
      const Status test = RunSelfTest(*bridge, test_memory_.memory(), address);
      tested = test.ok();
      if (!tested && test.code() != StatusCode::kResourceExhausted) {
        bridge->Retire(test.message());
        return;
      }
      EnterService(bridge, test);
    }
    pollfd end = {bridge->end_fd(), POLLIN, 0};
    if (poll(&end, 1, 0) > 0) return bridge->Retire("it ended by itself");
    Sleep(bridge->end_fd(), tested ? kForever : kTestAgain);
  }
}

void Supervisor::EnterService(const std::shared_ptr<Bridge>& bridge, const Status& test) {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    if (current_ == nullptr) ++era_;
    current_ = bridge;
    health_ = {StoreState::kUp, "master " + config_.master_server_address};
    if (!test.ok()) health_ = {StoreState::kDown, test.message()};
  }
  if (!test.ok()) {
    if (last_failure_ != test.message()) LOG_WARNING("mooncake: {}", test.message());
    last_failure_ = test.message();
    return;
  }
  last_failure_.clear();
  const std::string where = bridge->way() == Way::kInProcess
                                ? "in this process"
                                : fmt::format("process {}", bridge->pid());
  LOG_INFO("mooncake: up: by the {}, {}, protocol {}, master {}, {}",
           bridge->way() == Way::kWheel ? "wheel" : "library", in_use().library, config_.protocol,
           config_.master_server_address, where);
}

void Supervisor::MapRegions(Bridge& bridge) {
  std::vector<std::shared_ptr<const Region>> wanted;
  {
    MutexLock lock(mutex_);
    wanted = regions_;
  }
  const auto has = [](const auto& regions, const auto& region) {
    return std::find(regions.begin(), regions.end(), region) != regions.end();
  };
  std::erase_if(mapped_, [&](const auto& region) {
    if (has(wanted, region)) return false;
    bridge.Unmap(*region);
    return true;
  });
  for (const auto& region : wanted) {
    if (has(mapped_, region)) continue;
    // Once only, whatever comes of it: without, its objects go by the bounce area.
    mapped_.push_back(region);
    const Status status = bridge.Map(region);
    if (!status.ok() && !stopping()) {
      LOG_WARNING("mooncake: transfers are copied: {}", status.message());
    }
  }
}

}  // namespace embercache::mooncake
