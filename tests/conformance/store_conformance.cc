#include "tests/conformance/store_conformance.h"

#include <chrono>
#include <exception>
#include <random>
#include <utility>

#include "tests/conformance/payload.h"

namespace embercache {

ConformanceRun::ConformanceRun(const StoreUnderTest& under_test)
    : under_test_(under_test),
      prefix_(fmt::format("conformance_{:08x}{:08x}_", std::random_device()(),
                          std::random_device()())) {}

ConformanceRun::~ConformanceRun() = default;

bool ConformanceRun::Start() {
  auto store = under_test_.open();
  if (!Expect(store.ok(), "the store does not open: {}", store.status().ToString())) return false;
  stores_.push_back(std::move(*store));
  return true;
}

EmbeddingStore& ConformanceRun::Another() {
  if (traits().shared) Start();
  return *stores_.back();
}

std::string ConformanceRun::Key(std::string_view name) {
  std::string key = store().GetKey(prefix_ + std::string(name));
  Own(key);
  return key;
}

void ConformanceRun::Own(std::string key) {
  std::lock_guard lock(mutex_);
  keys_.insert(std::move(key));
}

void ConformanceRun::Fail(std::string message) {
  std::lock_guard lock(mutex_);
  // The same thing wrong a thousand times in a loop says no more than a few times.
  constexpr size_t kMaxFailures = 10;
  if (failures_.size() < kMaxFailures) failures_.push_back(std::move(message));
}

std::vector<std::string> ConformanceRun::failures() {
  std::lock_guard lock(mutex_);
  return failures_;
}

void ConformanceRun::Finish() {
  if (stores_.empty()) return;
  const auto deadline = SteadyClock().Now() + std::chrono::seconds(30);
  if (store().Health().state == StoreState::kDown) {  // the check closed it
    stores_.clear();
    if (!Start()) return;
  }
  for (const std::string& key : keys_) {
    const RemoveResult removed = RemoveOne(store(), key);
    Expect(removed.outcome != RemoveOutcome::kFailed, "'{}' is not removed at the end: {}", key,
           removed.status.ToString());
  }
  for (const auto& store : stores_) {
    const Status closed = store->Close(deadline);
    Expect(closed.ok(), "Close at the end: {}", closed.ToString());
  }
  stores_.clear();
  if (!under_test_.leftovers) return;
  const std::string leftovers = under_test_.leftovers();
  Expect(leftovers.empty(), "left over: {}", leftovers);
}

ConformanceOutcome RunConformanceCheck(const ConformanceCheck& check,
                                       const StoreUnderTest& under_test) {
  ConformanceRun run(under_test);
  try {
    if (run.Start()) check.run(run);
    run.Finish();
  } catch (const std::exception& error) {
    run.Fail(fmt::format("the store threw: {}", error.what()));
  }
  return {run.failures(), run.offered()};
}

}  // namespace embercache
