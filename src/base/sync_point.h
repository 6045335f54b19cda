#pragma once

// Named places in the code where a test can hold a thread, to force a race. Only in builds with
// EMBERCACHE_SYNC_POINTS (presets dev, asan, tsan); else a SYNC_POINT is nothing.

#if defined(EMBERCACHE_SYNC_POINTS)

#include <map>
#include <string>

#include "src/base/mutex.h"

namespace embercache {

// Thread-safe. Tests that use it must not run at the same time in one process.
class SyncPoints {
 public:
  static SyncPoints& Instance();

  // The next thread that comes to `name` waits there until Release.
  void Hold(const std::string& name);
  // Waits until a thread waits at `name`; false when none came in a long time.
  bool WaitHeld(const std::string& name);
  // Lets it go on, and any later one pass.
  void Release(const std::string& name);

  // What SYNC_POINT calls.
  void Reach(const char* name);

 private:
  enum class State { kArmed, kHeld, kReleased };
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, State> states_ GUARDED_BY(mutex_);
};

}  // namespace embercache

#define SYNC_POINT(name) ::embercache::SyncPoints::Instance().Reach(name)

#else
#define SYNC_POINT(name) static_cast<void>(0)
#endif
