#include "embercache/clock.h"

namespace embercache {
namespace {

class RealClock final : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
};

}  // namespace

const Clock& SteadyClock() {
  static const RealClock* const kClock = new RealClock();
  return *kClock;
}

}  // namespace embercache
