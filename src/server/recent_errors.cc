#include "src/server/recent_errors.h"

#include <chrono>
#include <utility>

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
  Push({UnixMilliseconds(), request_id, status.code(), Shortened(status.message()), {}});
}

void RecentErrors::AddTrouble(const std::string& kind, std::string_view message) {
  Push({UnixMilliseconds(), {}, StatusCode::kUnavailable, Shortened(message), kind});
}

void RecentErrors::Push(Entry entry) {
  MutexLock lock(mutex_);
  if (!entry.kind.empty()) {
    std::erase_if(entries_, [&](const Entry& other) { return other.kind == entry.kind; });
  }
  entries_.push_front(std::move(entry));
  if (entries_.size() > kMaxEntries) entries_.pop_back();
}

std::vector<RecentErrors::Entry> RecentErrors::Get() const {
  MutexLock lock(mutex_);
  return {entries_.begin(), entries_.end()};
}

}  // namespace embercache
