#pragma once

#include <chrono>

namespace embercache {

using Duration = std::chrono::nanoseconds;
// Monotonic time; every deadline is one of these.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

// The source of monotonic time, injected so that tests and the simulator own it. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
};

// std::chrono::steady_clock; never destroyed.
const Clock& SteadyClock();

}  // namespace embercache
