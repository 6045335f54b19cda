#include "python/src/copy_threads.h"

#include <utility>

namespace embercache::python {
namespace {

// Some 100 µs, which an event loop may be kept for.
constexpr uint64_t kSmallBytes = uint64_t{1} << 20;

thread_local bool in_caller = false;

}  // namespace

CopyThreads::Scope::Scope(uint64_t bytes) {
  in_caller = bytes <= kSmallBytes;
}

CopyThreads::Scope::~Scope() {
  in_caller = false;
}

void CopyThreads::Post(std::function<void()> task) {
  if (in_caller) {
    task();
  } else {
    threads_.Post(std::move(task));
  }
}

}  // namespace embercache::python
