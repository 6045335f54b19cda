#include "src/server/recent_errors.h"

#include <chrono>

#include "src/server/error_response.h"

namespace embercache {
namespace {

constexpr size_t kMaxEntries = 20;

int64_t UnixMilliseconds() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
}

}  // namespace

void RecentErrors::Add(const std::string& request_id, const Status& status) {
  Entry entry{UnixMilliseconds(), request_id, status.code(), Shortened(status.message())};
  MutexLock lock(mutex_);
  entries_.push_front(std::move(entry));
  if (entries_.size() > kMaxEntries) entries_.pop_back();
}

std::vector<RecentErrors::Entry> RecentErrors::Get() const {
  MutexLock lock(mutex_);
  return {entries_.begin(), entries_.end()};
}

}  // namespace embercache
