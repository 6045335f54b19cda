#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "embercache/status.h"
#include "src/base/mutex.h"

namespace embercache {

// The last few things that went wrong, for a person who looks at the status page. Thread-safe.
class RecentErrors {
 public:
  struct Entry {
    int64_t unix_ms = 0;
    std::string request_id;
    StatusCode code = StatusCode::kInternal;
    std::string message;
  };

  void Add(const std::string& request_id, const Status& status);
  // The newest first.
  std::vector<Entry> Get() const;

 private:
  mutable Mutex mutex_;
  std::deque<Entry> entries_ GUARDED_BY(mutex_);
};

}  // namespace embercache
