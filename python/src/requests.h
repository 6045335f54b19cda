#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "embercache/controller.h"
#include "src/base/mutex.h"

namespace embercache::python {

// The pins that prefetches hold for requests whose reader names embeddings only, as SGLang's does:
// given back together, once each embedding was used, or by age. Thread-safe.
class Requests {
 public:
  explicit Requests(Duration ttl) : ttl_(ttl) {}

  // A name for a prefetch, which the controller takes only once.
  std::string NameOf(const std::string& req_id);
  // It was begun. Those whose end nobody has asked for in the time to live are forgotten.
  void Add(const std::string& req_id, std::string name, std::vector<EmbeddingKey> keys);
  // The prefetches under way; the id itself where there is none, since among several ranks even
  // that is to be asked for.
  std::vector<std::string> Running(const std::string& req_id) const;
  // They are over: those that have something to be read keep it.
  void Finish(const std::string& req_id, EmbeddingCacheController& controller);
  // Somebody has read these: the oldest requests for them need no pins of them any more.
  void Used(std::span<const EmbeddingKey> keys, EmbeddingCacheController& controller);
  // Those that run or hold something.
  size_t size() const;

 private:
  struct Request;
  using RequestPtr = std::shared_ptr<Request>;

  void ForgetOld() REQUIRES(mutex_);

  const Duration ttl_;
  mutable Mutex mutex_;
  uint64_t last_number_ GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::string, std::vector<RequestPtr>> running_ GUARDED_BY(mutex_);
  // Of each embedding those that hold it, the oldest first.
  std::unordered_map<EmbeddingKey, std::deque<RequestPtr>, EmbeddingKeyHash> holders_
      GUARDED_BY(mutex_);
  std::deque<RequestPtr> by_age_ GUARDED_BY(mutex_);
};

}  // namespace embercache::python
