#include "python/src/cache.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <set>
#include <utility>

#include "src/base/mutex.h"
#include "src/cache/host_cache.h"

namespace embercache::python {
namespace {

// Every open cache of this process: a forked child begins with none, and with another mutex.
// Leaked, since caches may outlive statics.
struct OpenCaches {
  const ForkGuard fork;
  Mutex mutex;
  std::set<Cache*> caches GUARDED_BY(mutex);
};
OpenCaches& Open() {
  static std::atomic<OpenCaches*> open{new OpenCaches};
  OpenCaches* current = open.load();
  if (current->fork.forked()) {
    auto* const fresh = new OpenCaches;
    if (open.compare_exchange_strong(current, fresh)) current = fresh;
  }
  return *current;
}

const char* SourceName(Source source) {
  switch (source) {
    case Source::kLocal:
      return "local";
    case Source::kGlobal:
      return "global";
    case Source::kJoined:
      break;
  }
  return "joined";
}

const char* OutcomeName(embercache::PrefetchOutcome outcome) {
  switch (outcome) {
    case PrefetchOutcome::kPending:
      return "pending";
    case PrefetchOutcome::kLocal:
      return "local";
    case PrefetchOutcome::kGlobal:
      return "global";
    case PrefetchOutcome::kJoined:
      return "joined";
    case PrefetchOutcome::kMissing:
      return "missing";
    case PrefetchOutcome::kNoRoom:
      return "no_room";
    case PrefetchOutcome::kFailed:
      break;
  }
  return "failed";
}

const char* CopyName(CopyOutcome outcome) {
  switch (outcome) {
    case CopyOutcome::kPending:
      return "pending";
    case CopyOutcome::kCopied:
      return "copied";
    case CopyOutcome::kPresent:
      return "present";
    case CopyOutcome::kJoined:
      return "joined";
    case CopyOutcome::kMissing:
      return "missing";
    case CopyOutcome::kNoRoom:
      return "no_room";
    case CopyOutcome::kFailed:
      break;
  }
  return "failed";
}

// What becomes of items that are led. One that is only looked for is given up at once: another item
// of the same look-up may be waiting for it.
enum class Lead { kGiveUp, kKeep };

// The answers of one Lookup, waited for without the GIL.
class Answers {
 public:
  Answers(size_t items, Lead lead) : lead_(lead), answers_(items) {}

  LookupCallback Callback(const std::shared_ptr<Answers>& self) {
    return [self](size_t index, LookupAnswer answer) {
      if (self->lead_ == Lead::kGiveUp && answer.claim) {
        answer.claim.Abort(Status::NotFound("the item was only looked for"));
      }
      MutexLock lock(self->mutex_);
      self->answers_[index] = std::move(answer);
      if (++self->answered_ == self->answers_.size()) self->done_.NotifyAll();
    };
  }
  // Each item is answered once, at the latest when its deadline has passed.
  std::vector<LookupAnswer> Wait() {
    MutexLock lock(mutex_);
    while (answered_ < answers_.size()) (void)done_.WaitUntil(mutex_, TimePoint::max());
    return std::move(answers_);
  }

 private:
  const Lead lead_;
  Mutex mutex_;
  CondVar done_;
  std::vector<LookupAnswer> answers_ GUARDED_BY(mutex_);
  size_t answered_ GUARDED_BY(mutex_) = 0;
};

// REQUIRES: a str.
std::string_view TextOf(nb::handle text) {
  Py_ssize_t size = 0;
  const char* const data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (data == nullptr) throw nb::python_error();
  return {data, static_cast<size_t>(size)};
}

std::vector<LookupAnswer> LookUp(EmbeddingCacheController& controller, const EmbeddingSpec& spec,
                                 std::span<const LookupItem> items, TimePoint deadline,
                                 TimePoint wait_deadline, Lead lead) {
  if (items.empty()) return {};
  const nb::gil_scoped_release no_gil;
  const auto answers = std::make_shared<Answers>(items.size(), lead);
  controller.Lookup(spec, items, deadline, wait_deadline, answers->Callback(answers));
  return answers->Wait();
}

}  // namespace

Cache::Cache(const CacheSettings& settings, nb::object store) : settings_(settings) {
  dtype_ = ValueOrRaise(ParseDType(settings.dtype));
  ControllerOptions options;
  options.max_pool_bytes = settings.max_pool_bytes;
  options.max_uncached_bytes = settings.max_uncached_bytes;
  options.enable_eviction = settings.enable_eviction;
  options.max_eviction_batch = settings.max_eviction_batch;
  options.lookup_timeout = DurationOf(settings.lookup_timeout_s);
  options.publish_timeout = DurationOf(settings.publish_timeout_s);
  options.publish_confirm = DurationOf(settings.publish_confirm_s);
  options.request_ttl = DurationOf(settings.request_ttl_s);
  options.prefault = settings.prefault;
  options.tp_group = settings.tp_group;
  options.all_rank_get = settings.tp_group != nullptr;
  for (const auto& [modality, hidden] : settings.hidden) {
    options.pools.push_back({.modality = ValueOrRaise(ParseModality(modality)),
                             .row_bytes = SpecOf(modality).row_bytes()});
  }
  ControllerParts parts;
  if (nb::isinstance<NativeStore>(store)) {
    const auto& native = nb::cast<const NativeStore&>(store);
    native.fork.Check("store");
    parts.store = native.store;
  } else if (!store.is_none()) {
    parts.store = std::make_shared<PythonStore>(store);
  }
  if (parts.store != nullptr && IsRaw(*parts.store)) {
    raw_ = std::make_shared<RawStore>(std::move(parts.store));
    parts.store = raw_;
  }
  Status status;
  {
    const nb::gil_scoped_release no_gil;
    Result<std::unique_ptr<EmbeddingCacheController>> made =
        EmbeddingCacheController::Create(std::move(options), std::move(parts));
    status = made.status();
    if (made.ok()) controller_ = *std::move(made);
  }
  RaiseIfError(status);
  OpenCaches& open = Open();
  MutexLock lock(open.mutex);
  open.caches.insert(this);
}

Cache::~Cache() {
  if (!controller_) return;
  if (fork_.forked()) {
    // Its threads and maybe its locks are those of the parent.
    new std::shared_ptr<EmbeddingCacheController>(std::move(controller_));
    return;
  }
  const nb::gil_scoped_release no_gil;
  {
    OpenCaches& open = Open();
    MutexLock lock(open.mutex);
    open.caches.erase(this);
  }
  controller_.reset();
}

EmbeddingCacheController& Cache::Use() const {
  fork_.Check("cache");
  if (closed_) Raise(Status::Cancelled("the cache is closed"));
  return *controller_;
}

EmbeddingSpec Cache::SpecOf(const std::string& modality) const {
  const Modality parsed = ValueOrRaise(ParseModality(modality));
  const auto hidden = settings_.hidden.find(modality);
  if (hidden == settings_.hidden.end()) {
    Raise(Status::Invalid(
        fmt::format("the cache was made without a width for {}; name it in hidden", modality)));
  }
  return {.namespace_digest = settings_.namespace_digest,
          .modality = parsed,
          .dtype = dtype_,
          .hidden = hidden->second};
}

EmbeddingKey Cache::Key(const std::string& hash) const {
  return EmbeddingKey::FromCallerHash(settings_.namespace_digest, hash);
}

EmbeddingKey Cache::MediaKey(nb::bytes media, const std::string& modality,
                             const std::string& options) const {
  const Modality parsed = ValueOrRaise(ParseModality(modality));
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(media.data()), media.size());
  const nb::gil_scoped_release no_gil;
  return EmbeddingKey::FromMedia(settings_.namespace_digest, parsed, Sha256Of(bytes),
                                 Sha256Of(options));
}

EmbeddingKey Cache::ToKey(nb::handle key) const {
  if (nb::isinstance<EmbeddingKey>(key)) return nb::cast<const EmbeddingKey&>(key);
  if (!nb::isinstance<nb::str>(key)) throw nb::type_error("a key is a Key, or a hash as a str");
  return EmbeddingKey::FromCallerHash(settings_.namespace_digest, TextOf(key));
}

EmbeddingKey Cache::ToStoreKey(nb::handle key, const EmbeddingSpec& spec, int64_t tokens) {
  const EmbeddingKey made = ToKey(key);
  if (!raw_) return made;
  if (!nb::isinstance<nb::str>(key)) {
    Raise(Status::Invalid("a store in raw format knows hashes; give the hash as a str"));
  }
  raw_->Remember(made, TextOf(key), spec, tokens > 0 ? static_cast<uint64_t>(tokens) : 0);
  return made;
}

std::vector<EmbeddingKey> Cache::ToStoreKeys(nb::sequence keys, const EmbeddingSpec& spec,
                                             const std::vector<int64_t>* tokens) {
  const size_t count = nb::len(keys);
  if (tokens != nullptr && tokens->size() != count) {
    Raise(Status::Invalid(
        fmt::format("{} keys and {} token counts; give one for each key", count, tokens->size())));
  }
  std::vector<EmbeddingKey> result;
  result.reserve(count);
  for (const nb::handle key : keys) {
    result.push_back(ToStoreKey(key, spec, tokens != nullptr ? (*tokens)[result.size()] : 0));
  }
  return result;
}

double Cache::LookupSeconds(std::optional<double> timeout_s) const {
  return timeout_s.value_or(settings_.lookup_timeout_s);
}

nb::list Cache::GetMany(nb::sequence keys, const std::string& modality,
                        std::optional<std::vector<int64_t>> expected_tokens,
                        std::optional<double> timeout_s) {
  EmbeddingCacheController& controller = Use();
  const EmbeddingSpec spec = SpecOf(modality);
  const std::vector<EmbeddingKey> names =
      ToStoreKeys(keys, spec, expected_tokens ? &*expected_tokens : nullptr);
  std::vector<LookupItem> items;
  for (size_t i = 0; i < names.size(); ++i) {
    items.push_back({names[i], expected_tokens ? (*expected_tokens)[i] : -1});
    if (raw_ && items.back().expected_tokens <= 0) {
      Raise(Status::Invalid("a store in raw format needs expected_tokens for each key"));
    }
  }
  const TimePoint deadline = DeadlineIn(LookupSeconds(timeout_s));
  std::vector<LookupAnswer> answers =
      LookUp(controller, spec, items, deadline, deadline, Lead::kGiveUp);
  nb::list result;
  for (LookupAnswer& answer : answers) {
    if (answer.status.code() == StatusCode::kInvalid) Raise(answer.status);
    if (answer.pin) {
      result.append(nb::cast(
          std::make_unique<EmbeddingView>(std::move(answer.pin), SourceName(answer.source))));
    } else {
      result.append(nb::none());
    }
  }
  return result;
}

std::unique_ptr<EmbeddingView> Cache::Compute(Claim claim, const nb::callable& compute,
                                              const EmbeddingSpec& spec,
                                              const std::string& metadata) {
  nb::object array;
  InputRows rows;
  try {
    array = compute();
    rows = ValueOrRaise(RowsOf(nb::cast<InputArray>(array), spec));
  } catch (...) {
    claim.Abort(Status::Internal("the one who computed this item failed"));
    throw;
  }
  Status status;
  embercache::Pin pin;
  EmbeddingInfo info{.key = claim.key(), .spec = spec, .tokens = rows.tokens, .metadata = metadata};
  {
    const nb::gil_scoped_release no_gil;
    status = claim.Reserve(rows.rows.size(), metadata.size());
    if (status.ok()) {
      ConstBuffer from = rows.rows;
      for (const MutableBuffer to : claim.buffers()) {
        std::memcpy(to.data(), from.data(), to.size());
        from = from.subspan(to.size());
      }
      Result<embercache::Pin> committed = claim.Commit(rows.tokens, metadata);
      status = committed.status();
      if (committed.ok()) pin = *std::move(committed);
    } else {
      claim.Abort(status);
    }
  }
  if (pin) return std::make_unique<EmbeddingView>(std::move(pin), "computed");
  if (status.code() != StatusCode::kResourceExhausted) Raise(status);
  // No room: the one who asked gets it all the same.
  return std::make_unique<EmbeddingView>(std::move(info), rows.rows, HoldPython(array), "computed");
}

std::unique_ptr<EmbeddingView> Cache::GetOrCompute(nb::object key, nb::callable compute,
                                                   const std::string& modality,
                                                   int64_t expected_tokens, double wait_s,
                                                   bool publish, const std::string& metadata) {
  const EmbeddingSpec spec = SpecOf(modality);
  const LookupItem item{ToStoreKey(key, spec, expected_tokens), expected_tokens};
  if (raw_ && expected_tokens <= 0) {
    Raise(Status::Invalid("a store in raw format needs expected_tokens"));
  }
  const TimePoint wait_deadline = DeadlineIn(wait_s);
  while (true) {
    EmbeddingCacheController& controller = Use();
    LookupAnswer answer =
        std::move(LookUp(controller, spec, std::span(&item, 1),
                         DeadlineIn(settings_.lookup_timeout_s), wait_deadline, Lead::kKeep)
                      .front());
    if (answer.pin) {
      return std::make_unique<EmbeddingView>(std::move(answer.pin), SourceName(answer.source));
    }
    if (answer.claim) {
      auto view = Compute(std::move(answer.claim), compute, spec, metadata);
      if (publish && view->cached()) {
        const nb::gil_scoped_release no_gil;
        (void)controller.InsertBatch(std::span(&item.key, 1));
      }
      return view;
    }
    const StatusCode code = answer.status.code();
    const bool leader_failed = answer.source == Source::kJoined && code != StatusCode::kInvalid &&
                               code != StatusCode::kDeadlineExceeded;
    if (!leader_failed || SteadyClock().Now() >= wait_deadline) Raise(answer.status);
  }
}

std::unique_ptr<EmbeddingView> Cache::Pin(nb::object key) {
  embercache::Pin pin = Use().TryPin(ToKey(key));
  return pin ? std::make_unique<EmbeddingView>(std::move(pin), "local") : nullptr;
}

bool Cache::HasLocal(nb::object key) {
  return Use().HasLocalEmbedding(ToKey(key));
}

std::vector<bool> Cache::Exists(nb::sequence keys, std::optional<double> timeout_s) {
  EmbeddingCacheController& controller = Use();
  const std::vector<EmbeddingKey> names = ToStoreKeys(keys, {}, nullptr);
  struct Waited {
    Mutex mutex;
    CondVar done;
    std::optional<std::vector<bool>> found GUARDED_BY(mutex);
  };
  const auto waited = std::make_shared<Waited>();
  const nb::gil_scoped_release no_gil;
  controller.BatchIsExist(names, DeadlineIn(LookupSeconds(timeout_s)),
                          [waited](std::vector<bool> found) {
                            MutexLock lock(waited->mutex);
                            waited->found = std::move(found);
                            waited->done.NotifyAll();
                          });
  MutexLock lock(waited->mutex);
  while (!waited->found) (void)waited->done.WaitUntil(waited->mutex, TimePoint::max());
  return *std::move(waited->found);
}

nb::tuple Cache::Publish(nb::sequence keys) {
  EmbeddingCacheController& controller = Use();
  const std::vector<EmbeddingKey> names = ToStoreKeys(keys, {}, nullptr);
  InsertResult result;
  {
    const nb::gil_scoped_release no_gil;
    result = controller.InsertBatch(names);
  }
  return nb::make_tuple(result.new_count, result.local_hit_count, result.skipped_count);
}

std::string Cache::Remove(nb::object key, double timeout_s) {
  EmbeddingCacheController& controller = Use();
  const EmbeddingKey name = ToKey(key);
  struct Waited {
    Mutex mutex;
    CondVar done;
    std::optional<RemoveResult> result GUARDED_BY(mutex);
  };
  const auto waited = std::make_shared<Waited>();
  RemoveResult result;
  {
    const nb::gil_scoped_release no_gil;
    controller.Remove(name, DeadlineIn(timeout_s), [waited](RemoveResult removed) {
      MutexLock lock(waited->mutex);
      waited->result = std::move(removed);
      waited->done.NotifyAll();
    });
    MutexLock lock(waited->mutex);
    while (!waited->result) (void)waited->done.WaitUntil(waited->mutex, TimePoint::max());
    result = *std::move(waited->result);
  }
  switch (result.outcome) {
    case RemoveOutcome::kRemoved:
      return "removed";
    case RemoveOutcome::kAbsent:
      return "absent";
    case RemoveOutcome::kChanged:
      return "changed";
    case RemoveOutcome::kFailed:
      break;
  }
  Raise(result.status.ok() ? Status::Internal("a removal failed without a reason") : result.status);
}

void Cache::Prefetch(const std::string& req_id, nb::sequence keys,
                     const std::vector<int64_t>& expected_tokens, const std::string& modality) {
  EmbeddingCacheController& controller = Use();
  const EmbeddingSpec spec = SpecOf(modality);
  const std::vector<EmbeddingKey> names = ToStoreKeys(keys, spec, &expected_tokens);
  std::vector<LookupItem> items;
  for (size_t i = 0; i < names.size(); ++i) items.push_back({names[i], expected_tokens[i]});
  Status status;
  {
    const nb::gil_scoped_release no_gil;
    status = controller.Prefetch(req_id, spec, items);
  }
  RaiseIfError(status);
}

std::string Cache::PrefetchState(const std::string& req_id, double wait_s) {
  EmbeddingCacheController& controller = Use();
  embercache::PrefetchState state;
  {
    const nb::gil_scoped_release no_gil;
    if (wait_s > 0) (void)controller.WaitPrefetch(req_id, DeadlineIn(wait_s));
    state = controller.CheckPrefetchProgress(req_id);
  }
  switch (state) {
    case embercache::PrefetchState::kPending:
      return "pending";
    case embercache::PrefetchState::kDone:
      return "done";
    case embercache::PrefetchState::kExpired:
      break;
  }
  return "expired";
}

std::vector<std::string> Cache::PrefetchOutcomes(const std::string& req_id) {
  std::vector<std::string> names;
  for (const auto outcome : Use().PrefetchOutcomes(req_id)) names.push_back(OutcomeName(outcome));
  return names;
}

bool Cache::ReleaseRequest(const std::string& req_id) {
  return Use().ReleaseRequest(req_id).ok();
}

CopyHandle Cache::StoreToPool(nb::sequence keys, const std::vector<InputArray>& arrays,
                              const std::string& modality, const std::string& metadata) {
  EmbeddingCacheController& controller = Use();
  const EmbeddingSpec spec = SpecOf(modality);
  const std::vector<EmbeddingKey> names = ToStoreKeys(keys, spec, nullptr);
  if (names.size() != arrays.size()) {
    Raise(Status::Invalid(
        fmt::format("{} keys and {} arrays; give one for each key", names.size(), arrays.size())));
  }
  std::vector<PoolItem> items;
  for (size_t i = 0; i < names.size(); ++i) {
    const InputRows rows = ValueOrRaise(RowsOf(arrays[i], spec));
    items.push_back({.key = names[i],
                     .rows = rows.rows,
                     .tokens = rows.tokens,
                     .metadata = metadata,
                     .owner = HoldPython(nb::cast(arrays[i], nb::rv_policy::reference))});
  }
  const nb::gil_scoped_release no_gil;
  return controller.StoreToPoolAsync(spec, std::move(items));
}

CopyHandle Cache::Load(nb::object key, nb::ndarray<nb::c_contig, nb::device::cpu> destination,
                       uint64_t row_offset) {
  EmbeddingCacheController& controller = Use();
  const EmbeddingKey name = ToKey(key);
  const embercache::Pin pin = controller.TryPin(name);
  if (!pin) return nullptr;
  const EmbeddingInfo& info = pin.info();
  const nb::dlpack::dtype dtype = destination.dtype();
  const bool fits = destination.ndim() == 2 && destination.shape(1) == info.spec.hidden &&
                    row_offset <= destination.shape(0) &&
                    info.tokens <= destination.shape(0) - row_offset &&
                    (dtype == DlpackDType(info.spec.dtype) || dtype == NumpyDType(info.spec.dtype));
  if (!fits) {
    Raise(Status::Invalid(
        fmt::format("the destination has to be a contiguous array [at least {}, {}] of {}",
                    row_offset + info.tokens, info.spec.hidden, DTypeName(info.spec.dtype))));
  }
  auto* const to = static_cast<std::byte*>(destination.data_handle()) + destination.byte_offset() +
                   row_offset * info.spec.row_bytes();
  std::shared_ptr<const void> owner = HoldPython(nb::cast(destination, nb::rv_policy::reference));
  const nb::gil_scoped_release no_gil;
  return controller.LoadToDeviceAsync(name, {to, info.payload_bytes()}, std::move(owner));
}

std::vector<std::string> Cache::WaitCopies(const CopyHandle& handle, double timeout_s) {
  std::vector<CopyOutcome> outcomes;
  {
    const nb::gil_scoped_release no_gil;
    outcomes = EmbeddingCacheController::WaitCopies(handle, DeadlineIn(timeout_s));
  }
  std::vector<std::string> names;
  for (const CopyOutcome outcome : outcomes) names.push_back(CopyName(outcome));
  return names;
}

nb::dict Cache::Stats() {
  const ControllerStats stats = Use().Stats();
  nb::dict result;
  nb::list pools, lanes;
  for (const PoolView& pool : stats.pools) {
    nb::dict view;
    view["name"] = pool.name;
    view["page_kind"] = pool.page_kind;
    const std::pair<const char*, uint64_t> numbers[] = {
        {"row_bytes", pool.row_bytes},
        {"page_bytes", pool.page_bytes},
        {"pages", pool.pages},
        {"free", pool.free},
        {"filling", pool.filling},
        {"ready", pool.ready},
        {"quarantined", pool.quarantined},
        {"entries", pool.entries},
        {"filling_entries", pool.filling_entries},
        {"pinned_entries", pool.pinned_entries},
        {"evicted", pool.evicted},
        {"allocation_failures", pool.allocation_failures}};
    for (const auto& [name, number] : numbers) view[name] = number;
    pools.append(view);
  }
  for (const LaneView& lane : stats.lanes) {
    nb::dict view;
    view["name"] = lane.name;
    view["queued"] = lane.queued;
    view["running"] = lane.running;
    view["queued_bytes"] = lane.queued_bytes;
    view["dropped"] = lane.dropped;
    view["breaker_open"] = lane.breaker_open;
    lanes.append(view);
  }
  result["pools"] = pools;
  result["lanes"] = lanes;
  result["backend"] = stats.backend;
  const char* const state = stats.backend.empty()                        ? ""
                            : stats.store.state == StoreState::kUp       ? "up"
                            : stats.store.state == StoreState::kStarting ? "starting"
                                                                         : "down";
  result["store"] = state;
  result["store_detail"] = stats.store.detail;
  return result;
}

nb::list Cache::Regions() {
  HostCache& cache = Use().host_cache();
  nb::list regions;
  for (uint32_t i = 0; i < cache.num_pools(); ++i) {
    const BufferRegion region = cache.pool(i)->Region();
    regions.append(
        nb::make_tuple(reinterpret_cast<uintptr_t>(region.memory.data()), region.memory.size()));
  }
  return regions;
}

void Cache::CloseBy(TimePoint deadline) {
  closed_ = true;
  (void)controller_->Close(deadline);
}

void Cache::Close(double timeout_s) {
  fork_.Check("cache");
  closed_ = true;
  Status status;
  {
    const nb::gil_scoped_release no_gil;
    status = controller_->Close(DeadlineIn(timeout_s));
  }
  RaiseIfError(status);
}

void CloseAllCaches(TimePoint deadline) {
  OpenCaches& open = Open();
  MutexLock lock(open.mutex);
  for (Cache* const cache : open.caches) cache->CloseBy(deadline);
}

}  // namespace embercache::python
