#include "src/server/encode_task.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/cache/source_name.h"
#include "src/server/error_response.h"
#include "src/server/multipart.h"
#include "src/server/request_headers.h"

// Every item ends in Succeed or Fail, once; `open_` counts those that have not, and LookUpAll as
// one more. Whoever brings it to zero, or the timer at the deadline, takes the answer. What comes
// for an item after that is dropped: pins go back, and an embedding that is still being computed
// goes to the cache and to those who wait for it.

namespace embercache {
namespace {

// How often an item is looked up again because the one who led failed.
constexpr int kMaxLookups = 4;
// Items of a request are hashed in parallel when their texts have at least so many bytes.
constexpr size_t kParallelBytes = 256 << 10;

double Seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

TimePoint Now() {
  return SteadyClock().Now();
}

Status Late() {
  return Status::DeadlineExceeded("not done within the time that it may take");
}

// Whether to ask again, after the one who led failed with this.
bool MayLeadInstead(const Status& status) {
  return status.code() == StatusCode::kCancelled ||
         (status.retryable() && status.code() != StatusCode::kDeadlineExceeded);
}

}  // namespace

EncodeTask::EncodeTask(EncodeService* service, std::shared_ptr<HttpExchange> exchange)
    : service_(service),
      parts_(service->parts_),
      exchange_(std::move(exchange)),
      limits_(parts_.limits->Get()),
      received_(exchange_->request().received),
      deadline_(received_ + limits_.request_timeout) {}

EncodeTask::~EncodeTask() {
  service_->Release(admitted_);
}

void EncodeTask::Start() {
  const Status accepted = Accept();
  if (!accepted.ok()) {
    service_->NoteFailure(request_id_, accepted);
    return Respond(ErrorResponse(accepted));
  }
  exchange_->OnClientGone([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Abandon();
  });
  timer_ = parts_.timer->Schedule(deadline_, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->parts_.workers->Post([self] { self->Expire(); });
  });
  IdentifyAll();
}

Result<EncodeRequest> EncodeTask::Parse() {
  HttpRequest& request = exchange_->request();
  EMBERCACHE_ASSIGN_OR_RETURN(const std::string boundary,
                              MultipartBoundary(request.Header("Content-Type")));
  return boundary.empty() ? ParseEncodeRequest(request.body, limits_.max_items)
                          : ParseEncodeForm(request.body, boundary, limits_.max_items);
}

Status EncodeTask::ReadHeaders() {
  const HttpRequest& request = exchange_->request();
  EMBERCACHE_RETURN_IF_ERROR(ReadRequestId(request, &request_id_));
  EMBERCACHE_ASSIGN_OR_RETURN(deadline_, DeadlineOf(request, limits_.request_timeout));
  return Status::Ok();
}

Status EncodeTask::Accept() {
  EMBERCACHE_RETURN_IF_ERROR(ReadHeaders());
  if (Now() >= deadline_) {
    return Status::DeadlineExceeded("the request waited longer than it may take");
  }
  EMBERCACHE_ASSIGN_OR_RETURN(EncodeRequest request, Parse());
  EMBERCACHE_RETURN_IF_ERROR(CheckRequestId("field 'request_id'", request.request_id));
  if (!request.request_id.empty()) request_id_ = std::move(request.request_id);
  EMBERCACHE_ASSIGN_OR_RETURN(model_, service_->FindModel(request.model));
  if (!service_->Admit(request.items.size(), limits_.queue_items)) {
    SetRetryAfter(parts_.pipeline->EstimatedTime(*model_));
    return Status::ResourceExhausted(fmt::format(
        "the queue has no room for {} more items (--queue-items)", request.items.size()));
  }
  admitted_ = request.items.size();
  items_.resize(request.items.size());
  for (size_t i = 0; i < items_.size(); ++i) items_[i].requested = std::move(request.items[i]);
  MutexLock lock(mutex_);
  open_ = items_.size() + 1;
  return Status::Ok();
}

void EncodeTask::IdentifyAll() {
  size_t bytes = 0;
  for (const Item& item : items_) bytes += item.requested.text.size();
  const bool parallel = bytes >= kParallelBytes;
  unidentified_ = items_.size();
  for (size_t i = 1; parallel && i < items_.size(); ++i) {
    parts_.workers->Post([self = shared_from_this(), i] { self->Identify(i); });
  }
  for (size_t i = 0; i < (parallel ? 1 : items_.size()); ++i) Identify(i);
}

void EncodeTask::Identify(size_t index) {
  Item& item = items_[index];
  RequestedItem& requested = item.requested;
  if (!requested.error.ok()) {
    Fail(index, requested.error);
    return Identified();
  }
  const auto media =
      TakeMediaBytes(requested, parts_.media_root, limits_.max_body_bytes, &item.storage);
  if (!media.ok()) {
    Fail(index, media.status());
    return Identified();
  }
  item.media = *media;
  const Digest256 digest = Sha256Of(item.media);
  if (requested.sha256 && *requested.sha256 != digest) {
    Fail(index, Status::Invalid(fmt::format("field 'sha256' is {}, the bytes have {}",
                                            requested.sha256->ToHex(), digest.ToHex())));
    return Identified();
  }
  MutexLock lock(mutex_);
  item.answer.key = EmbeddingKey::FromMedia(model_->spec.namespace_digest, model_->spec.modality,
                                            digest, Sha256Of(requested.options.Canonical()));
  item.answer.has_key = true;
  lock.Unlock();
  Identified();
}

void EncodeTask::Identified() {
  if (unidentified_.fetch_sub(1) == 1) LookUpAll();
}

void EncodeTask::LookUpAll() {
  std::vector<size_t> indices;
  {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < items_.size(); ++i) {
      if (!items_[i].done) indices.push_back(i);
    }
  }
  lookup_start_ = Now();
  if (!indices.empty()) LookUp(std::move(indices));
  MutexLock lock(mutex_);
  const bool last = --open_ == 0;
  lock.Unlock();
  if (last) Finish();
}

void EncodeTask::LookUp(std::vector<size_t> indices) {
  std::vector<LookupItem> wanted;
  for (const size_t index : indices) {
    ++items_[index].lookups;
    wanted.push_back({items_[index].answer.key, -1});
  }
  const TimePoint store_deadline = std::min(deadline_, Now() + limits_.lookup_timeout);
  parts_.controller->Lookup(model_->spec, wanted, store_deadline, deadline_,
                            [self = shared_from_this(), indices](size_t i, LookupAnswer answer) {
                              self->OnLookup(indices[i], std::move(answer));
                            });
}

void EncodeTask::OnLookup(size_t index, LookupAnswer answer) {
  {
    MutexLock lock(mutex_);
    if (answered_) return;
    AnswerItem& item = items_[index].answer;
    item.fetch += answer.fetch_time;
    item.lookup = Now() - lookup_start_ - item.fetch;
    parts_.metrics->ObserveStage("lookup", Seconds(item.lookup));
  }
  if (answer.pin) return Succeed(index, std::move(answer.pin), SourceName(answer.source));
  if (answer.claim) return Compute(index, std::move(answer.claim));
  OnFailedLeader(index, answer.status);
}

void EncodeTask::Compute(size_t index, Claim claim) {
  const Duration needed = parts_.pipeline->EstimatedTime(*model_);
  if (Now() + needed > deadline_) {
    SetRetryAfter(needed);
    const Status busy = Status::ResourceExhausted(
        fmt::format("computing it would end in about {} ms, after the request's deadline",
                    std::chrono::duration_cast<std::chrono::milliseconds>(needed).count()));
    claim.Abort(busy);
    return Fail(index, busy);
  }
  EncodeJob job;
  job.model = model_;
  job.claim = std::move(claim);
  job.media = items_[index].media;
  job.options = items_[index].requested.options;
  job.deadline = deadline_;
  job.cancelled = {shared_from_this(), &abandoned_};
  job.done = [self = shared_from_this(), index](EncodeOutcome outcome) {
    self->OnComputed(index, std::move(outcome));
  };
  parts_.pipeline->Submit(std::move(job));
}

void EncodeTask::OnComputed(size_t index, EncodeOutcome outcome) {
  {
    MutexLock lock(mutex_);
    if (answered_) {
      lock.Unlock();
      // Late for this request; others may want it.
      if (outcome.status.ok()) Publish(std::span(&outcome.pin.info().key, 1));
      return;
    }
    items_[index].answer.preprocess = outcome.preprocess;
    items_[index].answer.encode = outcome.encode;
  }
  if (outcome.status.ok()) return Succeed(index, std::move(outcome.pin), "computed");
  // The pipeline may notice the deadline before the timer does.
  const bool late = outcome.status.code() == StatusCode::kCancelled && Now() >= deadline_;
  Fail(index, late ? Late() : outcome.status);
}

void EncodeTask::OnFailedLeader(size_t index, const Status& status) {
  if (items_[index].lookups >= kMaxLookups || !MayLeadInstead(status)) {
    return Fail(index, status);
  }
  parts_.workers->Post([self = shared_from_this(), index] { self->LookUp({index}); });
}

void EncodeTask::Succeed(size_t index, Pin pin, std::string_view source) {
  {
    MutexLock lock(mutex_);
    if (answered_ || items_[index].done) return;
    Item& item = items_[index];
    item.answer.pin = std::move(pin);
    item.answer.source = source;
    item.done = true;
  }
  OneDone();
}

void EncodeTask::Fail(size_t index, const Status& status) {
  {
    MutexLock lock(mutex_);
    if (answered_ || items_[index].done) return;
    Item& item = items_[index];
    item.answer.error = Status(status.code(), fmt::format("item {}: {}", index, status.message()),
                               status.retryable());
    item.done = true;
  }
  OneDone();
}

void EncodeTask::OneDone() {
  MutexLock lock(mutex_);
  const bool last = --open_ == 0;
  lock.Unlock();
  if (last) parts_.workers->Post([self = shared_from_this()] { self->Finish(); });
}

void EncodeTask::Expire() {
  for (size_t i = 0; i < items_.size(); ++i) {
    bool done;
    {
      MutexLock lock(mutex_);
      done = items_[i].done;
    }
    if (!done) Fail(i, Late());
  }
  Finish();
}

void EncodeTask::Abandon() {
  abandoned_ = true;
  Answer dropped;
  if (TakeAnswer(&dropped)) (void)parts_.timer->Cancel(timer_);
}

bool EncodeTask::TakeAnswer(Answer* answer) {
  MutexLock lock(mutex_);
  if (answered_) return false;
  answered_ = true;
  answer->request_id = request_id_;
  answer->total = Now() - received_;
  for (Item& item : items_) answer->items.push_back(std::move(item.answer));
  return true;
}

void EncodeTask::Finish() {
  Answer answer;
  if (!TakeAnswer(&answer)) return;
  (void)parts_.timer->Cancel(timer_);
  CountItems(answer);
  std::vector<EmbeddingKey> keys;
  for (const AnswerItem& item : answer.items) {
    if (item.error.ok()) keys.push_back(item.key);
  }
  const bool json = PrefersJson(exchange_->request().Header("Accept"));
  Respond(ComposeAnswer(std::move(answer), json));
  Publish(keys);
}

void EncodeTask::Respond(HttpResponse response) {
  response.headers.emplace_back("X-Request-Id", request_id_);
  if (response.status == 503) {
    response.headers.emplace_back("Retry-After", std::to_string(retry_after_s_.load()));
  }
  response.deadline = SendDeadline(deadline_);
  exchange_->Respond(std::move(response));
}

void EncodeTask::Publish(std::span<const EmbeddingKey> keys) const {
  if (parts_.controller->has_store() && !keys.empty()) (void)parts_.controller->InsertBatch(keys);
}

void EncodeTask::SetRetryAfter(Duration wait) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(wait).count();
  retry_after_s_ = std::max<int64_t>(1, seconds);
}

void EncodeTask::CountItems(const Answer& answer) const {
  Metrics& metrics = *parts_.metrics;
  const std::string modality(ModalityName(model_->spec.modality));
  for (const AnswerItem& item : answer.items) {
    if (!item.error.ok()) {
      service_->NoteFailure(request_id_, item.error);
      metrics.item_errors.Add({{"code", std::string(StatusCodeName(item.error.code()))}})
          .Increment();
      continue;
    }
    metrics.items.Add({{"source", std::string(item.source)}, {"modality", modality}}).Increment();
    if (item.source != "computed") {
      metrics.encoder_saved_seconds.Increment(model_->recent_cost_seconds());
    }
  }
}

}  // namespace embercache
