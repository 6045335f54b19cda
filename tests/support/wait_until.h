#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "embercache/clock.h"

namespace embercache {

// False: it did not come true, although a slow machine would have had the time.
inline bool WaitUntil(const std::function<bool()>& condition) {
  const TimePoint give_up = SteadyClock().Now() + std::chrono::minutes(2);
  while (!condition()) {
    if (SteadyClock().Now() > give_up) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace embercache
