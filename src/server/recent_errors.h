#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
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
    std::string kind;  // of trouble; empty for what failed a request
  };

  void Add(const std::string& request_id, const Status& status);
  // Trouble that no request is to blame for, and that comes again and again: the newest of each
  // `kind` is kept. `message` tells how often it came.
  void AddTrouble(const std::string& kind, std::string_view message);
  // The newest first.
  std::vector<Entry> Get() const;

 private:
  void Push(Entry entry);

  mutable Mutex mutex_;
  std::deque<Entry> entries_ GUARDED_BY(mutex_);
};

}  // namespace embercache
