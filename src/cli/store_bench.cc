#include "src/cli/store_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <latch>
#include <random>
#include <span>
#include <thread>
#include <utility>

#include "embercache/controller.h"
#include "src/cache/stored_object.h"
#include "src/store/borrowed_store.h"

namespace embercache {
namespace {

constexpr Duration kCallTime = std::chrono::seconds(60);
// Of each thread, however short the time is; and those that a 99th percentile is told of.
constexpr size_t kLeastCalls = 5;
constexpr size_t kLeastCallsForP99 = 100;
constexpr uint32_t kHidden = kBenchRowBytes / sizeof(float);
// Beside the embeddings themselves: trailers, and items that are on their way.
constexpr uint64_t kSpareBytes = uint64_t{64} << 20;

TimePoint Now() {
  return SteadyClock().Now();
}

double Milliseconds(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

CallContext Limits() {
  CallContext limits;
  limits.deadline = Now() + kCallTime;
  return limits;
}

// What one thread does again and again: `call` is timed, `after` is not. May be null.
struct Work {
  std::function<Status()> call;
  std::function<Status()> after;
};

struct ThreadTimes {
  std::vector<double> calls_ms;
  Status status;
};

void Repeat(const Work& work, Duration time, ThreadTimes* times) {
  times->status = work.call();  // warms up
  const TimePoint end = Now() + time;
  while (times->status.ok() && (times->calls_ms.size() < kLeastCalls || Now() < end)) {
    if (work.after) times->status = work.after();
    if (!times->status.ok()) return;
    const TimePoint start = Now();
    times->status = work.call();
    times->calls_ms.push_back(Milliseconds(Now() - start));
  }
}

Result<BenchMeasure> Measure(std::string op, const BenchLoad& load, Duration time,
                             const std::function<Work(uint32_t thread)>& make_work) {
  std::vector<ThreadTimes> times(load.threads);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < load.threads; ++i) {
    threads.emplace_back([&, i] { Repeat(make_work(i), time, &times[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  BenchMeasure measure{.op = std::move(op), .load = load};
  std::vector<double> all_ms;
  for (const ThreadTimes& thread : times) {
    if (!thread.status.ok()) {
      return Status(thread.status.code(),
                    fmt::format("{}: {}", measure.op, thread.status.message()));
    }
    double busy_ms = 0;
    for (const double ms : thread.calls_ms) busy_ms += ms;
    const auto bytes = static_cast<double>(load.bytes * load.batch * thread.calls_ms.size());
    measure.gb_per_s += bytes / 1e6 / std::max(busy_ms, 1e-6);
    all_ms.insert(all_ms.end(), thread.calls_ms.begin(), thread.calls_ms.end());
  }
  std::sort(all_ms.begin(), all_ms.end());
  measure.calls = all_ms.size();
  measure.p50_ms = Quantile(all_ms, 0.5);
  if (measure.calls >= kLeastCallsForP99) measure.p99_ms = Quantile(all_ms, 0.99);
  return measure;
}

// One bench's store, caches and objects.
class Bench {
 public:
  Bench(std::shared_ptr<EmbeddingStore> store, const BenchLoad& load);

  // Publishes the objects that gets read, each thread's its own.
  Status Prepare();
  Work Copy();
  Work Put(uint32_t thread);
  Work Get(uint32_t thread);
  Work CacheGet(uint32_t thread) { return LookUp(*uncached_, thread, Source::kGlobal); }
  Work HostHit(uint32_t thread) { return LookUp(*cached_, thread, Source::kLocal); }
  // Removes what was put.
  Status Clean();

 private:
  using Keys = std::vector<std::string>;

  std::span<const LookupItem> ItemsOf(uint32_t thread) const {
    return std::span(items_).subspan(size_t{thread} * load_.batch, load_.batch);
  }
  std::vector<LookupAnswer> Answers(EmbeddingCacheController& controller,
                                    std::span<const LookupItem> items) const;
  Work LookUp(EmbeddingCacheController& controller, uint32_t thread, Source expected);
  Status Fill(LookupAnswer answer) const;
  Status Publish(const EmbeddingKey& key);
  Status RemoveAll(const Keys& keys) const;

  const std::shared_ptr<EmbeddingStore> store_;
  const BenchLoad load_;
  const std::string name_;
  EmbeddingSpec spec_;
  std::vector<LookupItem> items_;
  std::vector<std::byte> source_;
  Keys published_;
  std::vector<Keys> put_;  // what each thread has put and not removed
  std::unique_ptr<EmbeddingCacheController> cached_;
  std::unique_ptr<EmbeddingCacheController> uncached_;
};

Bench::Bench(std::shared_ptr<EmbeddingStore> store, const BenchLoad& load)
    : store_(std::move(store)),
      load_(load),
      name_(fmt::format("bench_{:08x}{:08x}", std::random_device()(), std::random_device()())),
      spec_{Sha256Of(name_), Modality::kImage, DType::kF32, kHidden},
      source_(load.bytes),
      put_(load.threads) {
  std::minstd_rand random;
  for (std::byte& byte : source_) byte = static_cast<std::byte>(random() >> 16);
  // The cache does not publish what is no finite number.
  for (size_t i = 3; i < source_.size(); i += sizeof(float)) source_[i] &= std::byte{0x3f};
  const auto tokens = static_cast<int64_t>(load.bytes / kBenchRowBytes);
  for (size_t i = 0; i < size_t{load.batch} * load.threads; ++i) {
    items_.push_back(
        {EmbeddingKey::FromCallerHash(spec_.namespace_digest, std::to_string(i)), tokens});
  }
}

std::vector<LookupAnswer> Bench::Answers(EmbeddingCacheController& controller,
                                         std::span<const LookupItem> items) const {
  struct State {
    explicit State(size_t count) : answers(count), open(static_cast<std::ptrdiff_t>(count)) {}
    std::vector<LookupAnswer> answers;
    std::latch open;
  };
  // Whoever gives the last answer may still be in count_down when this returns.
  const auto state = std::make_shared<State>(items.size());
  const TimePoint deadline = Now() + kCallTime;
  controller.Lookup(spec_, items, deadline, deadline, [state](size_t i, LookupAnswer answer) {
    state->answers[i] = std::move(answer);
    state->open.count_down();
  });
  state->open.wait();
  return std::move(state->answers);
}

Status Bench::Fill(LookupAnswer answer) const {
  if (!answer.claim) {
    return answer.status.ok() ? Status::Internal("a key of this bench is there already")
                              : answer.status;
  }
  EMBERCACHE_RETURN_IF_ERROR(answer.claim.Reserve(load_.bytes, 0));
  ConstBuffer rest = source_;
  for (const MutableBuffer buffer : answer.claim.buffers()) {
    std::memcpy(buffer.data(), rest.data(), buffer.size());
    rest = rest.subspan(buffer.size());
  }
  return answer.claim.Commit(load_.bytes / kBenchRowBytes, "").status();
}

Status Bench::Prepare() {
  ControllerOptions options;
  options.max_pool_bytes = load_.total_bytes() + 4 * load_.bytes + kSpareBytes;
  options.pools = {{spec_.modality, spec_.row_bytes()}};
  options.lookup_timeout = kCallTime;
  options.publish_timeout = kCallTime;
  options.max_put_queue_bytes = options.max_pool_bytes;
  ControllerParts parts;
  parts.store = std::make_shared<BorrowedStore>(store_);
  EMBERCACHE_ASSIGN_OR_RETURN(cached_, EmbeddingCacheController::Create(options, parts));
  options.max_uncached_bytes = options.max_pool_bytes;
  options.max_pool_bytes = 0;
  EMBERCACHE_ASSIGN_OR_RETURN(uncached_, EmbeddingCacheController::Create(options, parts));

  std::vector<LookupAnswer> answers = Answers(*cached_, items_);
  for (size_t i = 0; i < items_.size(); ++i) {
    EMBERCACHE_RETURN_IF_ERROR(Fill(std::move(answers[i])));
    EMBERCACHE_RETURN_IF_ERROR(Publish(items_[i].key));
  }
  return Status::Ok();
}

// One at a time: the cache gives up publications that hold too much of its memory at once.
Status Bench::Publish(const EmbeddingKey& key) {
  published_.push_back(key.Text());
  const std::string_view text = published_.back();
  (void)cached_->InsertBatch({&key, 1});
  const TimePoint deadline = Now() + kCallTime;
  while (!store_->BatchStat({&text, 1}, Limits()).at(0).found) {
    if (Now() >= deadline) {
      return Status::Unavailable("an object that was published does not come to be there");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return Status::Ok();
}

Work Bench::Copy() {
  const auto target = std::make_shared<std::vector<std::byte>>(load_.bytes * load_.batch);
  return {.call =
              [this, target] {
                for (uint32_t i = 0; i < load_.batch; ++i) {
                  std::memcpy(target->data() + i * load_.bytes, source_.data(), load_.bytes);
                }
                return Status::Ok();
              },
          .after = nullptr};
}

Work Bench::Put(uint32_t thread) {
  Keys& names = put_[thread];
  const auto put = [this, &names, thread, next = uint64_t{0}]() mutable -> Status {
    for (uint32_t i = 0; i < load_.batch; ++i) {
      names.push_back(store_->GetKey(fmt::format("{}_{}_{}", name_, thread, next++)));
    }
    const std::vector<std::string_view> keys(names.begin(), names.end());
    const std::vector<ConstBuffer> buffers(keys.size(), source_);
    for (const PutResult& result : store_->BatchPut(keys, buffers, Limits())) {
      if (result.outcome == PutOutcome::kFailed) return result.status;
    }
    return Status::Ok();
  };
  const auto remove = [this, &names] { return RemoveAll(std::exchange(names, {})); };
  return {.call = put, .after = remove};
}

Work Bench::Get(uint32_t thread) {
  const auto memory = std::make_shared<std::vector<ObjectMemory>>(load_.batch);
  const auto get = [this, memory, thread]() -> Status {
    Keys texts;
    for (const LookupItem& item : ItemsOf(thread)) texts.push_back(item.key.Text());
    const std::vector<std::string_view> keys(texts.begin(), texts.end());
    std::vector<MutableBuffer> buffers;
    for (ObjectMemory& one : *memory) {
      EMBERCACHE_ASSIGN_OR_RETURN(const MutableBuffer buffer,
                                  one.Take(ObjectBytes(load_.bytes, 0)));
      buffers.push_back(buffer);
    }
    for (const GetResult& result : store_->BatchGet(keys, buffers, Limits())) {
      if (result.outcome == GetOutcome::kFailed) return result.status;
      if (result.outcome != GetOutcome::kHit) {
        return Status::Unavailable("an object that was put is not there any more");
      }
    }
    return Status::Ok();
  };
  return {.call = get, .after = nullptr};
}

Work Bench::LookUp(EmbeddingCacheController& controller, uint32_t thread, Source expected) {
  const auto look_up = [this, &controller, thread, expected]() -> Status {
    const std::vector<LookupAnswer> answers = Answers(controller, ItemsOf(thread));
    for (const LookupAnswer& answer : answers) {
      if (answer.pin && answer.source == expected) continue;
      return Status::Unavailable("the cache does not find an object that was published");
    }
    return Status::Ok();
  };
  return {.call = look_up, .after = nullptr};
}

Status Bench::RemoveAll(const Keys& keys) const {
  std::vector<RemoveItem> items;
  for (const std::string& key : keys) items.push_back({key, std::nullopt});
  if (items.empty()) return Status::Ok();
  for (const RemoveResult& result : store_->BatchRemove(items, Limits())) {
    if (result.outcome == RemoveOutcome::kFailed) return result.status;
  }
  return Status::Ok();
}

Status Bench::Clean() {
  cached_.reset();
  uncached_.reset();
  Status status = RemoveAll(published_);
  for (const Keys& keys : put_) {
    Status removed = RemoveAll(keys);
    if (status.ok()) status = std::move(removed);
  }
  return status;
}

Result<std::vector<BenchMeasure>> MeasureAll(Bench& bench, const BenchLoad& load, Duration time) {
  std::vector<BenchMeasure> measures;
  EMBERCACHE_RETURN_IF_ERROR(bench.Prepare());
  const auto add = [&](const char* op, const std::function<Work(uint32_t)>& make) -> Status {
    EMBERCACHE_ASSIGN_OR_RETURN(BenchMeasure measure, Measure(op, load, time, make));
    measures.push_back(std::move(measure));
    return Status::Ok();
  };
  EMBERCACHE_RETURN_IF_ERROR(add("copy", [&](uint32_t) { return bench.Copy(); }));
  EMBERCACHE_RETURN_IF_ERROR(add("put", [&](uint32_t thread) { return bench.Put(thread); }));
  EMBERCACHE_RETURN_IF_ERROR(add("get", [&](uint32_t thread) { return bench.Get(thread); }));
  EMBERCACHE_RETURN_IF_ERROR(
      add("cache get", [&](uint32_t thread) { return bench.CacheGet(thread); }));
  EMBERCACHE_RETURN_IF_ERROR(
      add("host hit", [&](uint32_t thread) { return bench.HostHit(thread); }));
  measures.back().gb_per_s = 0;
  return measures;
}

}  // namespace

Result<std::vector<BenchMeasure>> MeasureStore(const std::shared_ptr<EmbeddingStore>& store,
                                               const BenchLoad& load, Duration time) {
  Bench bench(store, load);
  Result<std::vector<BenchMeasure>> measures = MeasureAll(bench, load, time);
  const Status cleaned = bench.Clean();
  if (measures.ok() && !cleaned.ok()) return cleaned;
  return measures;
}

double Quantile(const std::vector<double>& sorted, double part) {
  if (sorted.empty()) return 0;
  const auto rank = static_cast<size_t>(part * static_cast<double>(sorted.size()));
  return sorted[std::min(rank, sorted.size() - 1)];
}

}  // namespace embercache
