#include "src/server/encode_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

#include "src/base/mutex.h"

// A job is owned by one place at a time: the decode queue, a decode thread, the ready queue, an
// encode thread. Whoever has it last calls `done`. Errors of decoding are not retryable, which
// tells those who wait for the claim that asking again is no use.

namespace embercache {
namespace {

struct ReadyJob {
  EncodeJob job;
  std::unique_ptr<PreparedItem> prepared;
  Duration preprocess{};
  TimePoint since{};
};

TimePoint Now() {
  return SteadyClock().Now();
}

double Seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

void Fail(EncodeJob job, const Status& reason, Duration preprocess = {}) {
  job.claim.Abort(reason);
  EncodeOutcome outcome;
  outcome.status = reason;
  outcome.preprocess = preprocess;
  job.done(std::move(outcome));
}

bool IsWanted(const EncodeJob& job, TimePoint now) {
  const bool cancelled = job.cancelled && job.cancelled->load(std::memory_order_relaxed);
  return (!cancelled && now < job.deadline) || job.claim.wanted();
}

// Somebody may have begun to wait a moment ago: he leads then.
Status GaveUp() {
  return Status::Cancelled("the request that was to encode it gave up");
}

bool SameBatch(const ReadyJob& a, const ReadyJob& b) {
  return a.job.model == b.job.model && a.prepared->shape == b.prepared->shape &&
         a.prepared->dtype == b.prepared->dtype;
}

Status CheckEncoded(const EncodedItem& item, const EmbeddingSpec& spec) {
  if (item.hidden == spec.hidden && item.dtype == spec.dtype &&
      item.bytes.size() == item.tokens * spec.row_bytes() && item.tokens > 0) {
    return Status::Ok();
  }
  return Status::Internal(fmt::format(
      "the encoder gave {} bytes as [{}, {}] {}, expected rows of {} {}", item.bytes.size(),
      item.tokens, item.hidden, DTypeName(item.dtype), spec.hidden, DTypeName(spec.dtype)));
}

void CopyTo(std::span<const MutableBuffer> buffers, std::span<const std::byte> bytes) {
  for (const MutableBuffer& buffer : buffers) {
    const size_t part = std::min(buffer.size(), bytes.size());
    std::memcpy(buffer.data(), bytes.data(), part);
    bytes = bytes.subspan(part);
  }
}

}  // namespace

struct EncodePipeline::State {
  State(const EncodePipelineOptions& pipeline_options, std::shared_ptr<Metrics> pipeline_metrics)
      : options(pipeline_options), metrics(std::move(pipeline_metrics)) {}

  void DecodeLoop();
  void Decode(EncodeJob job);
  void EncodeLoop();
  size_t BatchLimit() const REQUIRES(mutex);
  // Waits for more of the first ready job's shape. The ready queue may be empty after that.
  void WaitForBatch() REQUIRES(mutex);
  std::vector<ReadyJob> TakeBatch() REQUIRES(mutex);
  void Encode(std::vector<ReadyJob> batch);
  void EncodeEach(std::vector<ReadyJob> batch);
  Result<Pin> Commit(ReadyJob& ready, const EncodedItem& encoded, Duration encode);

  const EncodePipelineOptions options;
  const std::shared_ptr<Metrics> metrics;

  Mutex mutex;
  CondVar decode_work;
  CondVar encode_work;
  std::deque<EncodeJob> decode_queue GUARDED_BY(mutex);
  std::deque<ReadyJob> ready GUARDED_BY(mutex);
  uint64_t ready_bytes GUARDED_BY(mutex) = 0;
  // The jobs between Submit and their end.
  size_t open_jobs GUARDED_BY(mutex) = 0;
  double open_cost_seconds GUARDED_BY(mutex) = 0;
  bool stopping GUARDED_BY(mutex) = false;
};

void EncodePipeline::State::DecodeLoop() {
  MutexLock lock(mutex);
  for (;;) {
    while (!stopping && (decode_queue.empty() || ready_bytes >= options.max_prepared_bytes)) {
      decode_work.Wait(mutex);
    }
    if (stopping) return;
    EncodeJob job = std::move(decode_queue.front());
    decode_queue.pop_front();
    lock.Unlock();
    Decode(std::move(job));
    lock.Lock();
  }
}

void EncodePipeline::State::Decode(EncodeJob job) {
  const TimePoint start = Now();
  if (!IsWanted(job, start)) return Fail(std::move(job), GaveUp());
  Result<std::unique_ptr<PreparedItem>> prepared =
      job.model->encoder->Prepare(job.media, job.options);
  const Duration preprocess = Now() - start;
  metrics->ObserveStage("preprocess", Seconds(preprocess));
  if (!prepared.ok()) {
    const Status reason(prepared.status().code(), prepared.status().message(), false);
    return Fail(std::move(job), reason, preprocess);
  }
  MutexLock lock(mutex);
  if (stopping) {
    lock.Unlock();
    return Fail(std::move(job), Status::Cancelled("the server is stopping"), preprocess);
  }
  ready_bytes += (*prepared)->size_bytes;
  ready.push_back({std::move(job), std::move(*prepared), preprocess, Now()});
  encode_work.NotifyAll();
}

void EncodePipeline::State::EncodeLoop() {
  MutexLock lock(mutex);
  for (;;) {
    while (!stopping && ready.empty()) encode_work.Wait(mutex);
    if (stopping) return;
    WaitForBatch();
    if (stopping || ready.empty()) continue;
    std::vector<ReadyJob> batch = TakeBatch();
    decode_work.NotifyAll();
    lock.Unlock();
    Encode(std::move(batch));
    lock.Lock();
  }
}

size_t EncodePipeline::State::BatchLimit() const {
  return std::min<size_t>(options.max_batch_items,
                          ready.front().job.model->encoder->info().max_batch);
}

void EncodePipeline::State::WaitForBatch() {
  while (!stopping && !ready.empty()) {
    const ReadyJob& first = ready.front();
    const TimePoint until = std::min(first.since + options.max_batch_wait, first.job.deadline);
    const auto alike = std::count_if(
        ready.begin(), ready.end(), [&](const ReadyJob& other) { return SameBatch(first, other); });
    if (static_cast<size_t>(alike) >= BatchLimit() || Now() >= until) return;
    (void)encode_work.WaitUntil(mutex, until);
  }
}

std::vector<ReadyJob> EncodePipeline::State::TakeBatch() {
  std::vector<ReadyJob> batch;
  const size_t limit = BatchLimit();
  for (auto it = ready.begin(); it != ready.end() && batch.size() < limit;) {
    if (!batch.empty() && !SameBatch(batch.front(), *it)) {
      ++it;
      continue;
    }
    ready_bytes -= it->prepared->size_bytes;
    batch.push_back(std::move(*it));
    it = ready.erase(it);
  }
  return batch;
}

void EncodePipeline::State::Encode(std::vector<ReadyJob> batch) {
  const TimePoint start = Now();
  const auto expired = std::partition(
      batch.begin(), batch.end(), [start](const ReadyJob& r) { return IsWanted(r.job, start); });
  for (auto it = expired; it != batch.end(); ++it) {
    Fail(std::move(it->job), GaveUp(), it->preprocess);
  }
  batch.erase(expired, batch.end());
  if (batch.empty()) return;
  std::vector<const PreparedItem*> items;
  items.reserve(batch.size());
  for (const ReadyJob& ready_job : batch) items.push_back(ready_job.prepared.get());
  std::vector<EncodedItem> encoded(batch.size());
  const Status status = batch.front().job.model->encoder->Encode(items, encoded);
  const Duration encode = Now() - start;
  if (!status.ok() && batch.size() > 1) return EncodeEach(std::move(batch));

  for (size_t i = 0; i < batch.size(); ++i) {
    ReadyJob& ready_job = batch[i];
    const auto share = encode / static_cast<int64_t>(batch.size());
    metrics->ObserveStage("encode", Seconds(share));
    Result<Pin> pin = status.ok() ? Commit(ready_job, encoded[i], share) : Result<Pin>(status);
    if (!pin.ok()) {
      Fail(std::move(ready_job.job), pin.status(), ready_job.preprocess);
      continue;
    }
    ready_job.job.model->AddCost(Seconds(ready_job.preprocess + share));
    ready_job.job.done({Status::Ok(), std::move(*pin), ready_job.preprocess, encode});
  }
}

// One bad item fails alone.
void EncodePipeline::State::EncodeEach(std::vector<ReadyJob> batch) {
  for (ReadyJob& ready_job : batch) {
    std::vector<ReadyJob> alone;
    alone.push_back(std::move(ready_job));
    Encode(std::move(alone));
  }
}

Result<Pin> EncodePipeline::State::Commit(ReadyJob& ready_job, const EncodedItem& encoded,
                                          Duration encode) {
  const EmbeddingSpec& spec = ready_job.job.model->spec;
  EMBERCACHE_RETURN_IF_ERROR(CheckEncoded(encoded, spec));
  Claim& claim = ready_job.job.claim;
  std::string metadata = std::move(ready_job.prepared->metadata_json);
  EMBERCACHE_RETURN_IF_ERROR(claim.Reserve(encoded.bytes.size(), metadata.size()));
  CopyTo(claim.buffers(), encoded.bytes);
  return claim.Commit(encoded.tokens, std::move(metadata), 1e3 * Seconds(encode));
}

EncodePipeline::EncodePipeline(const EncodePipelineOptions& options,
                               std::shared_ptr<Metrics> metrics)
    : state_(std::make_shared<State>(options, std::move(metrics))),
      decode_pool_("decode", options.decode_threads),
      encode_pool_("encode", options.encode_threads) {
  for (size_t i = 0; i < options.decode_threads; ++i) {
    decode_pool_.Post([state = state_] { state->DecodeLoop(); });
  }
  for (size_t i = 0; i < options.encode_threads; ++i) {
    encode_pool_.Post([state = state_] { state->EncodeLoop(); });
  }
}

EncodePipeline::~EncodePipeline() {
  (void)Stop(TimePoint::max());
}

void EncodePipeline::Submit(EncodeJob job) {
  {
    MutexLock lock(state_->mutex);
    if (!state_->stopping) {
      const double cost = job.model->recent_cost_seconds();
      ++state_->open_jobs;
      state_->open_cost_seconds += cost;
      job.done = [state = state_, cost, done = std::move(job.done)](EncodeOutcome outcome) {
        {
          MutexLock done_lock(state->mutex);
          --state->open_jobs;
          state->open_cost_seconds -= cost;
        }
        done(std::move(outcome));
      };
      state_->decode_queue.push_back(std::move(job));
      state_->decode_work.NotifyOne();
      return;
    }
  }
  Fail(std::move(job), Status::Cancelled("the server is stopping"));
}

Duration EncodePipeline::EstimatedTime(const ServedModel& model) const {
  MutexLock lock(state_->mutex);
  if (state_->open_jobs == 0) return Duration::zero();
  const double ahead =
      state_->open_cost_seconds / static_cast<double>(state_->options.encode_threads);
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(ahead + model.recent_cost_seconds()));
}

size_t EncodePipeline::decode_queue_depth() const {
  MutexLock lock(state_->mutex);
  return state_->decode_queue.size();
}

size_t EncodePipeline::encode_queue_depth() const {
  MutexLock lock(state_->mutex);
  return state_->ready.size();
}

Status EncodePipeline::Stop(TimePoint deadline) {
  std::deque<EncodeJob> waiting;
  std::deque<ReadyJob> ready;
  {
    MutexLock lock(state_->mutex);
    state_->stopping = true;
    waiting.swap(state_->decode_queue);
    ready.swap(state_->ready);
    state_->decode_work.NotifyAll();
    state_->encode_work.NotifyAll();
  }
  const Status reason = Status::Cancelled("the server is stopping");
  for (EncodeJob& job : waiting) Fail(std::move(job), reason);
  for (ReadyJob& ready_job : ready) Fail(std::move(ready_job.job), reason, ready_job.preprocess);
  EMBERCACHE_RETURN_IF_ERROR(decode_pool_.Stop(deadline));
  return encode_pool_.Stop(deadline);
}

}  // namespace embercache
