#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/base/mutex.h"
#include "src/server/answer.h"
#include "src/server/encode_request.h"
#include "src/server/encode_service.h"

namespace embercache {

// One request under way. Kept alive by whoever still works for it.
class EncodeTask : public std::enable_shared_from_this<EncodeTask> {
 public:
  EncodeTask(EncodeService* service, std::shared_ptr<HttpExchange> exchange);
  ~EncodeTask();

  // Parses, identifies the items, looks them up. Runs on a worker.
  void Start();

 private:
  struct Item {
    RequestedItem requested;
    std::vector<std::byte> storage;
    std::span<const std::byte> media;
    AnswerItem answer;
    bool done = false;
    int lookups = 0;
  };

  Result<EncodeRequest> Parse();
  // Not ok: the whole request is refused.
  Status Accept();
  Status ReadHeaders();
  void IdentifyAll();
  void Identify(size_t index);
  // Counts down to LookUpAll.
  void Identified();
  void LookUpAll();
  void LookUp(std::vector<size_t> indices);
  void OnLookup(size_t index, LookupAnswer answer);
  void Compute(size_t index, Claim claim);
  void OnComputed(size_t index, EncodeOutcome outcome);
  void OnFailedLeader(size_t index, const Status& status);
  void Succeed(size_t index, Pin pin, std::string_view source);
  void Fail(size_t index, const Status& status);
  // The last one makes the answer.
  void OneDone();
  void Expire();
  // The client went away: what nobody else wants is not computed any more.
  void Abandon();
  // Takes the right to answer; false when someone has it already.
  bool TakeAnswer(Answer* answer) EXCLUDES(mutex_);
  void Finish();
  void Respond(HttpResponse response);
  void Publish(std::span<const EmbeddingKey> keys) const;
  void SetRetryAfter(Duration wait);
  void CountItems(const Answer& answer) const;

  EncodeService* const service_;
  const EncodeServiceParts& parts_;
  const std::shared_ptr<HttpExchange> exchange_;
  const Limits limits_;  // as they were when it came
  const TimePoint received_;
  TimePoint deadline_;
  std::string request_id_;
  std::shared_ptr<const ServedModel> model_;
  size_t admitted_ = 0;
  uint64_t timer_ = 0;
  std::atomic<bool> abandoned_{false};
  // Seconds after which a client that was refused may come again.
  std::atomic<int64_t> retry_after_s_{1};
  std::atomic<size_t> unidentified_{0};
  TimePoint lookup_start_{};
  // `requested`, `storage` and `media` are each written by one thread, before the look-up; `answer`
  // and `done` belong to the mutex.
  std::vector<Item> items_;

  Mutex mutex_;
  size_t open_ GUARDED_BY(mutex_) = 0;
  bool answered_ GUARDED_BY(mutex_) = false;
};

}  // namespace embercache
