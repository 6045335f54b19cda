#include "tests/simulation/sim_scheduler.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/support/address_sanitizer.h"
#ifdef EMBERCACHE_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

// Invariants: one fiber runs at a time (current_), or none, and then the main context does; a fiber
// is in live_ until its task has ended, and its stack is used again only after it was left for
// good.

namespace embercache::simulation {
namespace {

constexpr size_t kStackBytes = size_t{512} << 10;
constexpr size_t kGuardBytes = 4096;
// How late a posted task starts, at most.
constexpr Duration kMaxStartDelay = std::chrono::milliseconds(1);

// makecontext passes no pointer.
SimScheduler* starting = nullptr;

#ifdef EMBERCACHE_ASAN
void StartSwitch(void** fake_stack, const void* bottom, size_t bytes) {
  __sanitizer_start_switch_fiber(fake_stack, bottom, bytes);
}
void FinishSwitch(void* fake_stack, const void** old_bottom, size_t* old_bytes) {
  __sanitizer_finish_switch_fiber(fake_stack, old_bottom, old_bytes);
}
#else
void StartSwitch(void** /*fake_stack*/, const void* /*bottom*/, size_t /*bytes*/) {}
void FinishSwitch(void* /*fake_stack*/, const void** /*old_bottom*/, size_t* /*old_bytes*/) {}
#endif

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "simulator: %s\n", what);
  std::abort();
}

}  // namespace

struct SimScheduler::Fiber {
  Fiber() {
    mapping = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED || mprotect(mapping, kGuardBytes, PROT_NONE) != 0) {
      Die("no memory for a fiber's stack");
    }
    stack = static_cast<std::byte*>(mapping) + kGuardBytes;
  }
  ~Fiber() { munmap(mapping, kGuardBytes + kStackBytes); }

  void* mapping = nullptr;
  std::byte* stack = nullptr;
  ucontext_t context{};
  void* fake_stack = nullptr;
  std::function<void()> task;
  bool ended = false;
};

void SimScheduler::FiberDeleter::operator()(Fiber* fiber) const {
  delete fiber;
}

SimScheduler::SimScheduler(uint64_t seed) : random_(seed) {}

SimScheduler::~SimScheduler() {
  if (!live_.empty()) Die("destroyed with fibers alive");
}

uint64_t SimScheduler::Schedule(TimePoint when, std::function<void()> task) {
  Place place{std::max(when, now_), random_.Next()};
  while (events_.contains(place)) ++place.second;
  const uint64_t id = next_id_++;
  events_.emplace(place, Event{id, std::move(task)});
  places_.emplace(id, place);
  return id;
}

bool SimScheduler::Cancel(uint64_t id) {
  const auto found = places_.find(id);
  if (found == places_.end()) return false;
  const auto event = events_.find(found->second);
  const std::function<void()> dropped = std::move(event->second.task);
  events_.erase(event);
  places_.erase(found);
  return true;
}

void SimScheduler::Post(std::function<void()> task) {
  const Duration delay =
      random_.Chance(0.5) ? Duration::zero() : random_.Between({}, kMaxStartDelay);
  (void)Schedule(now_ + delay, [this, task = std::move(task)] { Start(task); });
}

void SimScheduler::SleepFor(Duration duration) {
  Fiber* const self = current_;
  if (self == nullptr) Die("a sleep outside of a fiber");
  (void)Schedule(now_ + duration, [this, self] { Resume(*self); });
  Leave(false);
}

bool SimScheduler::Step() {
  if (current_ != nullptr) Die("a step from within a fiber");
  if (events_.empty()) return false;
  const auto first = events_.begin();
  now_ = first->first.first;
  const Event event = std::move(first->second);
  events_.erase(first);
  places_.erase(event.id);
  history_ = (history_ ^ event.id ^ static_cast<uint64_t>(now_.time_since_epoch().count())) *
             0x9e3779b97f4a7c15ULL;
  event.task();
  return true;
}

void SimScheduler::Start(std::function<void()> task) {
  FiberPtr fiber;
  if (spare_.empty()) {
    fiber.reset(new Fiber);
  } else {
    fiber = std::move(spare_.back());
    spare_.pop_back();
  }
  fiber->task = std::move(task);
  fiber->ended = false;
  fiber->fake_stack = nullptr;
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack;
  fiber->context.uc_stack.ss_size = kStackBytes;
  fiber->context.uc_link = nullptr;
  makecontext(&fiber->context, &SimScheduler::Entry, 0);
  live_.push_back(std::move(fiber));
  starting = this;
  Resume(*live_.back());
}

void SimScheduler::Entry() {
  SimScheduler& self = *starting;
  FinishSwitch(nullptr, &self.main_stack_, &self.main_stack_bytes_);
  self.current_->task();
  self.current_->task = nullptr;
  self.current_->ended = true;
  self.Leave(true);
}

void SimScheduler::Resume(Fiber& fiber) {
  if (current_ != nullptr) Die("a fiber resumed from within another");
  current_ = &fiber;
  void* fake_stack = nullptr;
  StartSwitch(&fake_stack, fiber.stack, kStackBytes);
  swapcontext(&main_, &fiber.context);
  FinishSwitch(fake_stack, nullptr, nullptr);
  current_ = nullptr;
  if (!fiber.ended) return;
  const auto it = std::find_if(live_.begin(), live_.end(),
                               [&](const FiberPtr& other) { return other.get() == &fiber; });
  spare_.push_back(std::move(*it));
  live_.erase(it);
}

void SimScheduler::Leave(bool for_good) {
  Fiber& fiber = *current_;
  StartSwitch(for_good ? nullptr : &fiber.fake_stack, main_stack_, main_stack_bytes_);
  swapcontext(&fiber.context, &main_);
  FinishSwitch(fiber.fake_stack, &main_stack_, &main_stack_bytes_);
}

}  // namespace embercache::simulation
