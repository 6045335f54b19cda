#pragma once

#include <cstdint>
#include <functional>

#include "embercache/clock.h"
#include "src/base/executor.h"

namespace embercache::python {

// Threads for copies between host memory and the pool, and a way round them for small ones, which
// are done before a thread would have woken. Thread-safe.
class CopyThreads final : public Executor {
 public:
  void Post(std::function<void()> task) override;
  void Stop(TimePoint deadline) { (void)threads_.Stop(deadline); }

  // While one lives that was made for few bytes, what its thread posts is run at once.
  class Scope {
   public:
    explicit Scope(uint64_t bytes);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };

 private:
  ThreadPool threads_{"ec-copy", 2};
};

}  // namespace embercache::python
