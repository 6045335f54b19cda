// What the cache itself costs: look-ups, insertion against a bare copy, wake-ups, the locks'
// longest hold, and hits from a store in memory against a bare copy and hash. Figures:
// docs/performance.md.

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "embercache/controller.h"
#include "src/base/executor.h"
#include "src/base/log.h"
#include "src/cache/envelope.h"
#include "src/cache/host_cache.h"
#include "src/memory/page_pool.h"
#include "src/store/memory/memory_store.h"

namespace embercache {
namespace {

using std::chrono::duration;

constexpr uint64_t kMiB = uint64_t{1} << 20;

EmbeddingKey KeyOf(uint64_t number) {
  return {Sha256Of(fmt::format("key {}", number))};
}

EmbeddingSpec Spec(uint32_t hidden) {
  return {
      .namespace_digest = {}, .modality = Modality::kImage, .dtype = DType::kF32, .hidden = hidden};
}

double Percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

// A cache of `entries` one-page entries of 4 KiB, not pre-faulted.
std::shared_ptr<HostCache> SmallEntries(uint64_t entries, std::vector<EmbeddingKey>* keys) {
  PagePoolOptions options;
  options.name = "bench";
  options.row_bytes = 4096;
  options.page_bytes = 4096;
  options.size_bytes = entries * (4096 + kBlockBytes);
  options.prefault = false;
  auto cache = HostCache::Create({});
  const uint32_t pool = cache->AddPool(PagePool::Create(options).value());
  for (uint64_t i = 0; i < entries; ++i) {
    keys->push_back(KeyOf(i));
    Claim claim = cache->FindOrClaim(keys->back(), Spec(1024), pool, {}).claim;
    (void)claim.Reserve(4096, 0);
    (void)claim.Commit(1, "");
  }
  return cache;
}

void LookupPinUnpin(benchmark::State& state) {
  std::vector<EmbeddingKey> keys;
  const auto cache = SmallEntries(static_cast<uint64_t>(state.range(0)), &keys);
  uint64_t at = 0;
  const auto lookup = [&] {
    at = (at + 7919) % keys.size();
    Pin pin = cache->FindOrClaim(keys[at], Spec(1024), 0, {}).pin;
    benchmark::DoNotOptimize(pin);
  };
  for (auto _ : state) lookup();
  // Each alone, for the percentiles; a reading of the clock is part of each.
  std::vector<double> micros(100'000);
  for (double& one : micros) {
    const TimePoint start = SteadyClock().Now();
    lookup();
    one = duration<double, std::micro>(SteadyClock().Now() - start).count();
  }
  state.counters["p50_us"] = Percentile(micros, 0.5);
  state.counters["p99_us"] = Percentile(micros, 0.99);
}
BENCHMARK(LookupPinUnpin)->Arg(1000)->Arg(100'000)->Arg(1'000'000);

// Bytes in `state.range(0)`; the pool holds 8 of them, so that each insertion evicts.
void Insert(benchmark::State& state) {
  const auto bytes = static_cast<uint64_t>(state.range(0));
  PagePoolOptions options;
  options.name = "bench";
  options.row_bytes = 4096;
  options.size_bytes = 9 * (bytes + 2 * (256 << 10));
  auto cache = HostCache::Create({});
  const uint32_t pool = cache->AddPool(PagePool::Create(options).value());
  const std::vector<std::byte> source(bytes, std::byte{1});
  uint64_t number = 0;
  std::vector<EmbeddingKey> keys;
  for (uint64_t i = 0; i < 4096; ++i) keys.push_back(KeyOf(i));
  for (auto _ : state) {
    Claim claim = cache->FindOrClaim(keys[number++ % keys.size()], Spec(1024), pool, {}).claim;
    if (!claim || !claim.Reserve(bytes, 0).ok()) return state.SkipWithError("no pages");
    ConstBuffer rest = source;
    for (MutableBuffer buffer : claim.buffers()) {
      std::memcpy(buffer.data(), rest.data(), buffer.size());
      rest = rest.subspan(buffer.size());
    }
    (void)claim.Commit(bytes / 4096, "");
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

// The same bytes into the same amount of touched memory, in turn.
void BareCopy(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  std::vector<std::byte> target(9 * bytes, std::byte{2});
  const std::vector<std::byte> source(bytes, std::byte{1});
  size_t slot = 0;
  for (auto _ : state) {
    std::memcpy(target.data() + (slot++ % 9) * bytes, source.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BareCopy)->Arg(kMiB)->Arg(4 * kMiB)->Arg(30 * kMiB);
BENCHMARK(Insert)->Arg(kMiB)->Arg(4 * kMiB)->Arg(30 * kMiB);

// From Commit to a thread that waited for it, and a check that nothing polls meanwhile.
void CommitToWakeUp(benchmark::State& state) {
  std::vector<EmbeddingKey> keys;
  const auto cache = SmallEntries(2, &keys);
  std::vector<double> micros;
  uint64_t number = 100;
  for (auto _ : state) {
    const EmbeddingKey key = KeyOf(number++);
    Claim claim = cache->FindOrClaim(key, Spec(1024), 0, {}).claim;
    (void)claim.Reserve(4096, 0);
    std::promise<void> waiting;
    TimePoint woken;
    std::thread waiter([&] {
      std::promise<Pin> done;
      (void)cache->FindOrClaim(key, Spec(1024), 0,
                               [&done](Result<Pin> pin) { done.set_value(*std::move(pin)); });
      waiting.set_value();
      const Pin pin = done.get_future().get();
      woken = SteadyClock().Now();
    });
    waiting.get_future().wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // asleep by now
    const TimePoint start = SteadyClock().Now();
    (void)claim.Commit(1, "");
    waiter.join();
    micros.push_back(duration<double, std::micro>(woken - start).count());
  }
  state.counters["p50_us"] = Percentile(micros, 0.5);
  state.counters["p99_us"] = Percentile(micros, 0.99);
}
BENCHMARK(CommitToWakeUp)->Iterations(500)->Unit(benchmark::kMicrosecond);

// With 10,000 holes of one page: the longest of many statistics and allocations of 120 pages, which
// hold the lock for nearly all of their time.
void HolesAllocateAndStats(benchmark::State& state) {
  PagePoolOptions options;
  options.name = "bench";
  options.row_bytes = 4096;
  options.page_bytes = 4096;
  options.size_bytes = 20'000 * (4096 + kBlockBytes);
  options.prefault = false;
  const auto pool = PagePool::Create(options).value();
  std::vector<PageList> lists(20'000);
  for (PageList& list : lists) (void)pool->Allocate(1, 0, false, &list);
  for (size_t i = 0; i < lists.size(); i += 2) lists[i].Reset();
  std::vector<double> micros;
  for (auto _ : state) {
    PageList list;
    const TimePoint start = SteadyClock().Now();
    const bool got = pool->Allocate(120, 1, false, &list);
    benchmark::DoNotOptimize(pool->Stats());
    micros.push_back(duration<double, std::micro>(SteadyClock().Now() - start).count());
    if (!got) return state.SkipWithError("no pages");
  }
  state.counters["p50_us"] = Percentile(micros, 0.5);
  state.counters["p99_us"] = Percentile(micros, 0.99);
}
BENCHMARK(HolesAllocateAndStats)->Iterations(20'000)->Unit(benchmark::kMicrosecond);

// Four objects from the memory store into the host cache, verified, of known sizes.
void FourGlobalHits(benchmark::State& state) {
  const auto bytes = static_cast<uint64_t>(state.range(0));
  ControllerOptions options;
  options.max_pool_bytes = 12 * (bytes + 2 * (256 << 10));
  options.pools = {{Modality::kImage, 4096}};
  options.lookup_timeout = std::chrono::seconds(10);
  ControllerParts parts;
  parts.store = CreateMemoryStore({}).value();
  auto controller = EmbeddingCacheController::Create(options, std::move(parts)).value();
  std::vector<LookupItem> items;
  for (uint64_t i = 0; i < 4; ++i) {
    items.push_back({KeyOf(i), static_cast<int64_t>(bytes / 4096)});
  }
  const auto lookup = [&](bool fill) {
    std::promise<void> done;
    std::atomic<int> left{4};
    const TimePoint deadline = SteadyClock().Now() + std::chrono::seconds(10);
    controller->Lookup(Spec(1024), items, deadline, deadline, [&](size_t, LookupAnswer answer) {
      if (answer.claim && fill) {
        (void)answer.claim.Reserve(bytes, 0);
        for (MutableBuffer buffer : answer.claim.buffers()) {
          std::memset(buffer.data(), 1, buffer.size());
        }
        (void)answer.claim.Commit(bytes / 4096, "");
      } else if (!answer.pin || answer.source != Source::kGlobal) {
        std::abort();
      }
      if (left.fetch_sub(1) == 1) done.set_value();
    });
    done.get_future().wait();
  };
  lookup(true);
  std::vector<EmbeddingKey> keys;
  for (const LookupItem& item : items) keys.push_back(item.key);
  (void)controller->InsertBatch(keys);
  while (controller->Stats().lanes[1].running + controller->Stats().lanes[1].queued > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (auto _ : state) {
    state.PauseTiming();
    for (const EmbeddingKey& key : keys) controller->host_cache().Remove(key);
    state.ResumeTiming();
    lookup(false);
  }
  state.SetBytesProcessed(state.iterations() * 4 * state.range(0));
}

// What four hits come down to, either on the thread that asks or on another one that it waits for.
class BareHits {
 public:
  explicit BareHits(size_t bytes)
      : bytes_(bytes), source_(4 * bytes, std::byte{1}), target_(4 * bytes, std::byte{2}) {}

  void Run() {
    for (size_t i = 0; i < 4; ++i) {
      std::memcpy(target_.data() + i * bytes_, source_.data() + i * bytes_, bytes_);
      const ConstBuffer copied(target_.data() + i * bytes_, bytes_);
      benchmark::DoNotOptimize(ChecksumOf(std::span(&copied, 1)));
    }
  }

 private:
  const size_t bytes_;
  const std::vector<std::byte> source_;
  std::vector<std::byte> target_;
};

void FourBareCopiesAndHashes(benchmark::State& state) {
  BareHits hits(static_cast<size_t>(state.range(0)));
  for (auto _ : state) hits.Run();
  state.SetBytesProcessed(state.iterations() * 4 * state.range(0));
}

void FourBareOnAnotherThread(benchmark::State& state) {
  BareHits hits(static_cast<size_t>(state.range(0)));
  ThreadPool pool("bare", 1);
  for (auto _ : state) {
    std::promise<void> done;
    pool.Post([&] {
      hits.Run();
      done.set_value();
    });
    done.get_future().wait();
  }
  state.SetBytesProcessed(state.iterations() * 4 * state.range(0));
}
BENCHMARK(FourBareCopiesAndHashes)->Arg(kMiB)->Arg(4 * kMiB)->Arg(16 * kMiB)->UseRealTime();
BENCHMARK(FourBareOnAnotherThread)->Arg(kMiB)->Arg(4 * kMiB)->Arg(16 * kMiB)->UseRealTime();
BENCHMARK(FourGlobalHits)->Arg(kMiB)->Arg(4 * kMiB)->Arg(16 * kMiB)->UseRealTime();

}  // namespace
}  // namespace embercache

int main(int argc, char** argv) {
  (void)embercache::SetLogLevel("error");
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
