#include "src/base/sync_point.h"

#if defined(EMBERCACHE_SYNC_POINTS)

namespace embercache {

SyncPoints& SyncPoints::Instance() {
  static SyncPoints* const kPoints = new SyncPoints;
  return *kPoints;
}

void SyncPoints::Hold(const std::string& name) {
  MutexLock lock(mutex_);
  states_[name] = State::kArmed;
}

bool SyncPoints::WaitHeld(const std::string& name) {
  const TimePoint deadline = SteadyClock().Now() + std::chrono::seconds(60);
  MutexLock lock(mutex_);
  while (states_[name] != State::kHeld) {
    if (!changed_.WaitUntil(mutex_, deadline)) return states_[name] == State::kHeld;
  }
  return true;
}

void SyncPoints::Release(const std::string& name) {
  MutexLock lock(mutex_);
  states_[name] = State::kReleased;
  changed_.NotifyAll();
}

void SyncPoints::Reach(const char* name) {
  MutexLock lock(mutex_);
  const auto it = states_.find(name);
  if (it == states_.end() || it->second != State::kArmed) return;
  it->second = State::kHeld;
  changed_.NotifyAll();
  while (it->second != State::kReleased) changed_.Wait(mutex_);
}

}  // namespace embercache

#endif
