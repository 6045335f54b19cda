#include "python/src/cache.h"

#include <fmt/format.h>

#include <atomic>
#include <set>
#include <utility>

#include "src/base/mutex.h"

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

// The answer of one BatchIsExist.
struct Presence {
  Mutex mutex;
  CondVar done;
  std::optional<std::vector<bool>> found GUARDED_BY(mutex);

  static std::shared_ptr<Presence> Ask(EmbeddingCacheController& controller,
                                       std::span<const EmbeddingKey> names, TimePoint deadline) {
    auto presence = std::make_shared<Presence>();
    controller.BatchIsExist(names, deadline, [presence](std::vector<bool> found) {
      MutexLock lock(presence->mutex);
      presence->found = std::move(found);
      presence->done.NotifyAll();
    });
    return presence;
  }
};

}  // namespace

Cache::Cache(const CacheSettings& settings, nb::object store)
    : settings_(settings),
      memo_(settings.namespace_digest),
      requests_(DurationOf(settings.request_ttl_s)),
      copies_(std::make_shared<CopyThreads>()) {
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
  parts.copy_executor = copies_;
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
    new std::shared_ptr<CopyThreads>(std::move(copies_));
    return;
  }
  const nb::gil_scoped_release no_gil;
  {
    OpenCaches& open = Open();
    MutexLock lock(open.mutex);
    open.caches.erase(this);
  }
  copies_->Stop(DeadlineIn(1));
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

EmbeddingKey Cache::MediaKey(nb::bytes media, const std::string& modality,
                             const std::string& options) const {
  const Modality parsed = ValueOrRaise(ParseModality(modality));
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(media.data()), media.size());
  const nb::gil_scoped_release no_gil;
  return EmbeddingKey::FromMedia(settings_.namespace_digest, parsed, Sha256Of(bytes),
                                 Sha256Of(options));
}

EmbeddingKey Cache::ToKey(nb::handle key) {
  if (nb::isinstance<nb::str>(key)) return memo_.KeyOf(key);
  if (nb::isinstance<EmbeddingKey>(key)) return nb::cast<const EmbeddingKey&>(key);
  throw nb::type_error("a key is a Key, or a hash as a str");
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
  const nb::gil_scoped_release no_gil;
  const auto presence =
      Presence::Ask(controller, names, DeadlineIn(timeout_s.value_or(settings_.lookup_timeout_s)));
  MutexLock lock(presence->mutex);
  while (!presence->found) (void)presence->done.WaitUntil(presence->mutex, TimePoint::max());
  return *std::move(presence->found);
}

std::optional<std::vector<bool>> Cache::ExistsHere(nb::sequence keys) {
  EmbeddingCacheController& controller = Use();
  std::vector<EmbeddingKey> names;
  names.reserve(nb::len(keys));
  for (const nb::handle key : keys) {
    names.push_back(ToKey(key));
    if (controller.has_store() && !controller.HasLocalEmbedding(names.back())) return std::nullopt;
  }
  // Answered at once, unless one was evicted just now.
  const auto presence = Presence::Ask(controller, names, DeadlineIn(settings_.lookup_timeout_s));
  MutexLock lock(presence->mutex);
  return std::move(presence->found);
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

void Cache::CloseBy(TimePoint deadline) {
  closed_ = true;
  copies_->Stop(deadline);
  (void)controller_->Close(deadline);
}

void Cache::Close(double timeout_s) {
  fork_.Check("cache");
  closed_ = true;
  Status status;
  {
    const nb::gil_scoped_release no_gil;
    const TimePoint deadline = DeadlineIn(timeout_s);
    copies_->Stop(deadline);
    status = controller_->Close(deadline);
  }
  RaiseIfError(status);
}

void CloseAllCaches(TimePoint deadline) {
  OpenCaches& open = Open();
  MutexLock lock(open.mutex);
  for (Cache* const cache : open.caches) cache->CloseBy(deadline);
}

}  // namespace embercache::python
