// Invariant: a request is in running_, or in holders_ under each of its `unused` keys, or over. It
// is in by_age_ until it is over, and until those before it are.

#include "python/src/requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "src/cache/prefetch.h"

namespace embercache::python {

struct Requests::Request {
  std::string req_id;
  std::string name;
  std::vector<EmbeddingKey> keys;
  TimePoint since;
  bool running = true;
  std::unordered_set<EmbeddingKey, EmbeddingKeyHash> unused;

  bool over() const { return !running && unused.empty(); }
};

std::string Requests::NameOf(const std::string& req_id) {
  MutexLock lock(mutex_);
  return fmt::format("{}#{}", req_id, ++last_number_);
}

void Requests::Add(const std::string& req_id, std::string name, std::vector<EmbeddingKey> keys) {
  auto request = std::make_shared<Request>(Request{.req_id = req_id,
                                                   .name = std::move(name),
                                                   .keys = std::move(keys),
                                                   .since = SteadyClock().Now(),
                                                   .unused = {}});
  MutexLock lock(mutex_);
  running_[req_id].push_back(request);
  by_age_.push_back(std::move(request));
  ForgetOld();
}

std::vector<std::string> Requests::Running(const std::string& req_id) const {
  MutexLock lock(mutex_);
  const auto running = running_.find(req_id);
  if (running == running_.end()) return {req_id};
  std::vector<std::string> names;
  for (const RequestPtr& request : running->second) names.push_back(request->name);
  return names;
}

void Requests::Finish(const std::string& req_id, EmbeddingCacheController& controller) {
  MutexLock lock(mutex_);
  const auto running = running_.find(req_id);
  if (running == running_.end()) return;
  const std::vector<RequestPtr> finished = std::move(running->second);
  std::vector<RequestPtr> over;
  running_.erase(running);
  for (const RequestPtr& request : finished) {
    const std::vector<PrefetchOutcome> outcomes = controller.PrefetchOutcomes(request->name);
    for (size_t i = 0; i < outcomes.size(); ++i) {
      if (IsReady(outcomes[i]) && request->unused.insert(request->keys[i]).second) {
        holders_[request->keys[i]].push_back(request);
      }
    }
    request->running = false;
    if (request->over()) over.push_back(request);
  }
  lock.Unlock();
  for (const RequestPtr& request : over) (void)controller.ReleaseRequest(request->name);
}

void Requests::Used(std::span<const EmbeddingKey> keys, EmbeddingCacheController& controller) {
  std::vector<RequestPtr> over;
  MutexLock lock(mutex_);
  for (const EmbeddingKey& key : keys) {
    const auto holders = holders_.find(key);
    if (holders == holders_.end()) continue;
    const RequestPtr request = std::move(holders->second.front());
    holders->second.pop_front();
    if (holders->second.empty()) holders_.erase(holders);
    request->unused.erase(key);
    if (request->over()) over.push_back(request);
  }
  lock.Unlock();
  for (const RequestPtr& request : over) (void)controller.ReleaseRequest(request->name);
}

size_t Requests::size() const {
  MutexLock lock(mutex_);
  return static_cast<size_t>(std::count_if(
      by_age_.begin(), by_age_.end(), [](const RequestPtr& request) { return !request->over(); }));
}

// The controller gives their pins back by age itself.
void Requests::ForgetOld() {
  const TimePoint before = SteadyClock().Now() - ttl_;
  while (!by_age_.empty() && (by_age_.front()->over() || by_age_.front()->since < before)) {
    const RequestPtr request = std::move(by_age_.front());
    by_age_.pop_front();
    if (request->running) {
      const auto running = running_.find(request->req_id);
      std::erase(running->second, request);
      if (running->second.empty()) running_.erase(running);
    }
    for (const EmbeddingKey& key : request->unused) {
      const auto holders = holders_.find(key);
      std::erase(holders->second, request);
      if (holders->second.empty()) holders_.erase(holders);
    }
  }
}

}  // namespace embercache::python
