#include "src/cache/global_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "src/cache/fetch_job.h"
#include "src/cache/finite.h"
#include "src/cache/raw_store.h"

// Invariants: a job owns the blocks or pins that its store call touches, until the call has
// returned; what `done` is given was written before `done`, or is not given (after a deadline the
// job's own state is not looked at any more).

namespace embercache {
namespace {

constexpr Duration kRemoveTimeout = std::chrono::seconds(5);

}  // namespace

GlobalCache::GlobalCache(std::shared_ptr<EmbeddingStore> store, GlobalCacheOptions options,
                         const Clock* clock, std::shared_ptr<Metrics> metrics)
    : store_(std::move(store)),
      has_checksums_(dynamic_cast<const RawStore*>(store_.get()) == nullptr),
      options_(std::move(options)),
      clock_(clock),
      metrics_(std::move(metrics)),
      confirmations_(options_.publish_confirm, options_.seed) {}

std::shared_ptr<GlobalCache> GlobalCache::Create(std::shared_ptr<EmbeddingStore> store,
                                                 GlobalCacheOptions options,
                                                 std::shared_ptr<Executor> get_executor,
                                                 std::shared_ptr<Executor> put_executor,
                                                 std::shared_ptr<Timer> timer, const Clock* clock,
                                                 std::shared_ptr<Metrics> metrics) {
  options.get.name = "get";
  options.put.name = "put";
  options.put.drop_oldest = true;
  std::shared_ptr<GlobalCache> cache(
      new GlobalCache(std::move(store), std::move(options), clock, std::move(metrics)));
  cache->get_lane_ =
      std::make_unique<TransferLane>(cache->options_.get, std::move(get_executor), timer, clock);
  cache->put_lane_ =
      std::make_unique<TransferLane>(cache->options_.put, std::move(put_executor), timer, clock);
  // After an outage the store may have lost what it confirmed.
  std::weak_ptr<GlobalCache> weak = cache;
  const auto forget = [weak] {
    if (const auto self = weak.lock()) self->confirmations_.Forget();
  };
  cache->get_lane_->OnRecovered(forget);
  cache->put_lane_->OnRecovered(forget);
  return cache;
}

void GlobalCache::Observe(const char* op, TimePoint start) {
  metrics_->store_seconds
      .Add({{"backend", std::string(store_->name())}, {"op", op}}, Metrics::Buckets())
      .Observe(std::chrono::duration<double>(clock_->Now() - start).count());
}

void GlobalCache::CountBytes(const char* op, uint64_t bytes) {
  metrics_->store_bytes.Add({{"backend", std::string(store_->name())}, {"op", op}})
      .Increment(static_cast<double>(bytes));
}

void GlobalCache::Count(const char* op, const char* result, uint64_t items) {
  metrics_->store_operations
      .Add({{"backend", std::string(store_->name())}, {"op", op}, {"result", result}})
      .Increment(static_cast<double>(items));
}

const char* GlobalCache::FailureLabel(const Status& status) {
  switch (status.code()) {
    case StatusCode::kDeadlineExceeded:
      return "timeout";
    case StatusCode::kCancelled:
    case StatusCode::kResourceExhausted:
      return "refused";
    default:
      return "error";
  }
}

const char* GlobalCache::RefusalLabel(const Status& status) {
  return status.code() == StatusCode::kDeadlineExceeded ? "timeout" : "refused";
}

void GlobalCache::Fetch(const EmbeddingSpec& spec, std::vector<FetchItem> items,
                        const PagePool* pool, TimePoint deadline,
                        std::function<void(std::vector<FetchResult>)> done) {
  const size_t count = items.size();
  if (pool != nullptr && uint64_t{pool->Stats().quarantined} * 4 > pool->num_pages()) {
    Count("get", "refused", count);
    LogFailure("fetches",
               Status::ResourceExhausted(fmt::format(
                   "store calls that have not returned hold a quarter of pool {}", pool->name())));
    return done(std::vector<FetchResult>(count));
  }
  SubmitFetch(
      std::make_shared<FetchJob>(*this, std::vector<EmbeddingSpec>{spec}, false, std::move(items)),
      count, deadline, std::move(done));
}

void GlobalCache::SubmitFetch(std::shared_ptr<FetchJob> job, size_t count, TimePoint deadline,
                              std::function<void(std::vector<FetchResult>)> done) {
  TransferJob transfer;
  transfer.bytes = job->queue_bytes();
  transfer.deadline = deadline;
  transfer.run = [self = shared_from_this(), job](const CallContext& context) {
    return job->Run(context);
  };
  transfer.done = [self = shared_from_this(), job, count, done = std::move(done)](
                      const Status& status, bool returned) {
    std::vector<FetchResult> results(count);
    if (returned) {
      results = job->TakeResults();
    } else {
      self->Count("get", RefusalLabel(status), count);
    }
    self->LogFailure("fetches", status);
    done(std::move(results));
  };
  get_lane_->Submit(std::move(transfer));
}

void GlobalCache::LogFailure(const char* what, const Status& status) {
  if (status.ok()) return;
  if (const uint64_t count = failure_log_.Admit(clock_->Now())) {
    LOG_WARNING("store {}: calls that failed: {}, last of {}: {}", store_->name(), count, what,
                status.ToString());
  }
}

bool GlobalCache::TakePutPages(const std::vector<Pin>& pins) {
  MutexLock lock(mutex_);
  for (const Pin& pin : pins) {
    const PagePool& pool = pin.block_->pool();
    if (put_pages_[&pool] * 4 > pool.num_pages()) return false;
  }
  for (const Pin& pin : pins) put_pages_[&pin.block_->pool()] += pin.block_->num_pages();
  return true;
}

void GlobalCache::ReturnPutPages(const std::vector<Pin>& pins) {
  MutexLock lock(mutex_);
  for (const Pin& pin : pins) put_pages_[&pin.block_->pool()] -= pin.block_->num_pages();
}

void GlobalCache::CountPublished(const char* result, uint64_t items) {
  metrics_->published.Add({{"result", result}}).Increment(static_cast<double>(items));
}

// Pins of one publication; what they hold counts as put pages until the store call is over.
struct GlobalCache::PublishJob {
  PublishJob(std::shared_ptr<GlobalCache> owner, std::vector<Pin> taken)
      : cache(std::move(owner)), pins(std::move(taken)) {}
  ~PublishJob() { cache->ReturnPutPages(pins); }

  const std::shared_ptr<GlobalCache> cache;
  std::vector<Pin> pins;
};

void GlobalCache::Read(const EmbeddingKey& key, std::vector<EmbeddingSpec> specs,
                       const std::shared_ptr<PagePool>& memory, TimePoint deadline,
                       std::function<void(Result<Pin>)> done) {
  FetchItem item{.key = key};
  item.reserve = [memory](uint64_t payload_bytes,
                          uint64_t trailer_blocks) -> Result<std::shared_ptr<Block>> {
    PageList pages;
    if (memory == nullptr || payload_bytes > memory->num_pages() * memory->page_bytes() ||
        !memory->Allocate(memory->PagesFor(payload_bytes), static_cast<uint32_t>(trailer_blocks),
                          true, &pages)) {
      return Status::ResourceExhausted("the request arena has no room");
    }
    return std::make_shared<Block>(std::move(pages), payload_bytes);
  };
  std::vector<FetchItem> items;
  items.push_back(std::move(item));
  SubmitFetch(std::make_shared<FetchJob>(*this, std::move(specs), true, std::move(items)), 1,
              deadline, [key, done = std::move(done)](std::vector<FetchResult> results) {
                FetchResult& result = results.front();
                switch (result.outcome) {
                  case FetchOutcome::kMiss:
                    return done(Status::NotFound("the store has no such embedding"));
                  case FetchOutcome::kNoRoom:
                    return done(Status::ResourceExhausted("the request arena has no room"));
                  case FetchOutcome::kFailed:
                    return done(Status::Unavailable("the store did not answer in time"));
                  case FetchOutcome::kHit:
                    break;
                }
                result.block->Seal({key, result.spec, result.tokens, std::move(result.metadata)},
                                   /*from_store=*/true);
                done(Pin(nullptr, nullptr, std::move(result.block)));
              });
}

void GlobalCache::Publish(std::vector<Pin> pins, TimePoint deadline) {
  const size_t asked = pins.size();
  confirmations_.Follow(store_->Era());
  std::erase_if(pins, [this, now = clock_->Now()](const Pin& pin) {
    const EmbeddingKey& key = pin.info().key;
    return confirmations_.Contains(key, now) && !bad_keys_.Contains(key);
  });
  if (asked > pins.size()) CountPublished("already_present", asked - pins.size());
  // One batch, unless it is more than the queue may hold half full.
  while (!pins.empty()) {
    uint64_t bytes = 0;
    size_t count = 0;
    while (count < pins.size()) {
      bytes += pins[count].block_->object_bytes();
      if (count > 0 && bytes > options_.put.max_queued_bytes / 2) break;
      ++count;
    }
    const auto end = pins.begin() + static_cast<std::ptrdiff_t>(count);
    std::vector<Pin> batch(std::make_move_iterator(pins.begin()), std::make_move_iterator(end));
    pins.erase(pins.begin(), end);
    SubmitPublish(std::move(batch), deadline);
  }
}

void GlobalCache::SubmitPublish(std::vector<Pin> pins, TimePoint deadline) {
  const size_t count = pins.size();
  if (!TakePutPages(pins)) {
    CountPublished("dropped", count);
    LogFailure("publications",
               Status::ResourceExhausted("puts that have not returned hold a quarter of the pool"));
    return;
  }
  TransferJob transfer;
  for (const Pin& pin : pins) transfer.bytes += pin.block_->object_bytes();
  transfer.deadline = deadline;
  auto job = std::make_shared<PublishJob>(shared_from_this(), std::move(pins));
  transfer.run = [job](const CallContext& context) {
    return job->cache->RunPublish(*job, context);
  };
  transfer.done = [self = shared_from_this(), count](const Status& status, bool returned) {
    if (!returned) {
      const bool dropped = status.code() == StatusCode::kResourceExhausted;
      self->CountPublished(dropped ? "dropped" : "failed", count);
    }
    self->LogFailure("publications", status);
  };
  put_lane_->Submit(std::move(transfer));
}

Status GlobalCache::RunPublish(PublishJob& job, const CallContext& context) {
  std::vector<const Pin*> pins;
  uint64_t nonfinite = 0;
  for (const Pin& pin : job.pins) {
    const bool refused = !options_.publish_nonfinite && !pin.block_->from_store() &&
                         HasNonFinite(pin.buffers(), pin.info().spec.dtype);
    if (refused) {
      ++nonfinite;
    } else {
      pins.push_back(&pin);
    }
  }
  if (nonfinite > 0) {
    metrics_->nonfinite.Add({}).Increment(static_cast<double>(nonfinite));
    CountPublished("failed", nonfinite);
    LogFailure("publications", Status::Invalid("an embedding has NaN or Inf; it is not published"));
  }
  if (pins.empty()) return Status::Cancelled("nothing is left to publish");
  std::vector<std::string> keys;
  std::vector<std::vector<ConstBuffer>> buffers;
  std::vector<PutItem> items;
  keys.reserve(pins.size());
  buffers.reserve(pins.size());
  const uint64_t now_ms = WallMs();
  for (const Pin* pin : pins) {
    keys.push_back(pin->info().key.Text());
    buffers.push_back(pin->block_->ObjectBuffers(now_ms, has_checksums_));
    const bool bad = bad_keys_.Contains(pin->info().key);
    items.push_back({.key = keys.back(),
                     .buffers = buffers.back(),
                     .mode = bad ? PutMode::kReplace : PutMode::kIfAbsent});
  }
  const uint64_t generation = confirmations_.generation();
  const std::vector<PutResult> results = CallStore<PutResult>(
      "put", items.size(), [&] { return store_->BatchPutFromMultiBuffers(items, context); });
  bool any_ok = false;
  Status failure;
  for (size_t i = 0; i < results.size(); ++i) {
    Status status = TakePut(*pins[i], items[i].mode, results[i], generation);
    if (status.ok()) {
      any_ok = true;
    } else {
      failure = std::move(status);
    }
  }
  return any_ok ? Status::Ok() : failure;
}

Status GlobalCache::TakePut(const Pin& pin, PutMode mode, const PutResult& result,
                            uint64_t confirm_generation) {
  switch (result.outcome) {
    case PutOutcome::kStored:
    case PutOutcome::kAccepted:
      CountPublished(result.outcome == PutOutcome::kStored ? "stored" : "accepted", 1);
      CountBytes("put", pin.block_->object_bytes());
      if (mode == PutMode::kReplace) bad_keys_.Erase(pin.info().key);
      break;
    case PutOutcome::kAlreadyPresent:
      CountPublished("already_present", 1);
      break;
    case PutOutcome::kFailed: {
      Status status =
          result.status.ok() ? Status::Internal("a put failed without a reason") : result.status;
      CountPublished("failed", 1);
      Count("put", FailureLabel(status));
      return status;
    }
  }
  Count("put", "ok");
  confirmations_.Add(pin.info().key, confirm_generation, store_->TimeToLive() / 2, clock_->Now());
  return Status::Ok();
}

void GlobalCache::Exist(std::vector<EmbeddingKey> keys, TimePoint deadline,
                        std::function<void(std::vector<bool>)> done) {
  struct Job {
    std::vector<EmbeddingKey> keys;
    std::vector<bool> found;
  };
  auto job = std::make_shared<Job>();
  const size_t count = keys.size();
  job->keys = std::move(keys);
  job->found.resize(count);
  TransferJob transfer;
  transfer.deadline = deadline;
  transfer.run = [self = shared_from_this(), job](const CallContext& context) {
    std::vector<std::string> texts;
    for (const EmbeddingKey& key : job->keys) texts.push_back(key.Text());
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    const std::vector<StatResult> results = self->CallStore<StatResult>(
        "exist", views.size(), [&] { return self->store_->BatchIsExist(views, context); });
    Status failure;
    bool answered = false;
    for (size_t i = 0; i < results.size(); ++i) {
      const StatResult& result = results[i];
      job->found[i] = result.status.ok() && result.found;
      if (result.status.ok()) {
        answered = true;
        self->Count("exist", result.found ? "ok" : "miss");
        if (!result.found) self->confirmations_.Missed(job->keys[i], self->clock_->Now());
      } else {
        self->Count("exist", FailureLabel(result.status));
        failure = result.status;
      }
    }
    return answered ? Status::Ok() : failure;
  };
  transfer.done = [self = shared_from_this(), job, count, done = std::move(done)](
                      const Status& status, bool returned) {
    if (!returned) self->Count("exist", RefusalLabel(status), count);
    done(returned ? std::move(job->found) : std::vector<bool>(count));
  };
  get_lane_->Submit(std::move(transfer));
}

void GlobalCache::SubmitRemove(const EmbeddingKey& key, std::optional<ObjectVersion> version,
                               TimePoint deadline, std::function<void(RemoveResult)> done) {
  auto result = std::make_shared<RemoveResult>();
  TransferJob transfer;
  transfer.deadline = deadline;
  transfer.run = [self = shared_from_this(), key, version, result](const CallContext& context) {
    const std::string text = key.Text();
    const RemoveItem item{.key = text, .version = version};
    *result = self->CallStore<RemoveResult>(
                      "remove", 1,
                      [&] { return self->store_->BatchRemove(std::span(&item, 1), context); })
                  .front();
    const bool failed = result->outcome == RemoveOutcome::kFailed;
    self->Count("remove", failed ? FailureLabel(result->status)
                          : result->outcome == RemoveOutcome::kRemoved ? "ok"
                                                                       : "miss");
    return failed ? result->status : Status::Ok();
  };
  transfer.done = [self = shared_from_this(), result, done = std::move(done)](const Status& status,
                                                                              bool returned) {
    if (returned) return done(std::move(*result));
    self->Count("remove", RefusalLabel(status));
    done({.outcome = RemoveOutcome::kFailed, .status = status});
  };
  put_lane_->Submit(std::move(transfer));
}

void GlobalCache::Remove(const EmbeddingKey& key, TimePoint deadline,
                         std::function<void(RemoveResult)> done) {
  // What a put confirmed before the object went is worth nothing after.
  SubmitRemove(key, std::nullopt, deadline,
               [self = shared_from_this(), done = std::move(done)](RemoveResult result) {
                 self->confirmations_.Forget();
                 done(std::move(result));
               });
}

void GlobalCache::CountCorruption(const EmbeddingKey& key, const Status& reason) {
  metrics_->corruptions.Add({{"backend", std::string(store_->name())}}).Increment();
  if (const uint64_t count = corrupt_log_.Admit(clock_->Now())) {
    LOG_WARNING("store {}: bad objects, none of them served: {}, last {}: {}", store_->name(),
                count, key.Text(), reason.message());
  }
}

void GlobalCache::ReportBad(const EmbeddingKey& key, std::optional<ObjectVersion> version) {
  (void)bad_keys_.Add(key);
  // Without a version it might be a good object of another writer that goes; the next publication
  // of the key replaces the bad one instead.
  if (!version || !bad_keys_.AdmitRemoval(clock_->Now())) return;
  SubmitRemove(key, version, clock_->Now() + kRemoveTimeout,
               [self = shared_from_this(), key](const RemoveResult& result) {
                 if (result.outcome != RemoveOutcome::kFailed) self->bad_keys_.Erase(key);
               });
}

Status GlobalCache::RegisterBuffer(const BufferRegion& region) {
  EMBERCACHE_RETURN_IF_ERROR(store_->RegisterBuffer(region));
  MutexLock lock(mutex_);
  regions_.push_back(region);
  return Status::Ok();
}

Status GlobalCache::Close(TimePoint deadline) {
  const Status get = get_lane_->Close(deadline);
  const Status put = put_lane_->Close(deadline);
  if (get.ok() && put.ok()) {
    std::vector<BufferRegion> regions;
    {
      MutexLock lock(mutex_);
      regions.swap(regions_);
    }
    for (const BufferRegion& region : regions) (void)store_->UnregisterBuffer(region);
  }
  const Status store = store_->Close(deadline);
  EMBERCACHE_RETURN_IF_ERROR(get);
  EMBERCACHE_RETURN_IF_ERROR(put);
  return store;
}

}  // namespace embercache
