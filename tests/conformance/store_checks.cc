// The checks themselves. Each leaves its objects to ConformanceRun::Finish.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <thread>

#include "tests/conformance/payload.h"
#include "tests/conformance/store_conformance.h"

namespace embercache {
namespace {

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * 1024;

bool IsStored(const ConformanceRun& run, PutOutcome outcome) {
  return outcome == PutOutcome::kStored ||
         (!run.traits().tells_stored && outcome == PutOutcome::kAccepted);
}

bool IsKept(const ConformanceRun& run, PutOutcome outcome) {
  return outcome == PutOutcome::kAlreadyPresent ||
         (!run.traits().tells_stored && outcome == PutOutcome::kAccepted);
}

// Puts an object that has to become readable.
bool Store(ConformanceRun& run, std::string_view key, std::span<const std::byte> bytes,
           PutMode mode = PutMode::kIfAbsent) {
  const PutResult put = PutOne(run.store(), key, bytes, mode);
  return run.Expect(IsStored(run, put.outcome), "put of {} bytes: outcome {}, {}", bytes.size(),
                    static_cast<int>(put.outcome), put.status.ToString());
}

// The object has to be there and be `bytes`.
bool Holds(ConformanceRun& run, EmbeddingStore& store, std::string_view key, const Bytes& bytes) {
  Bytes got;
  const GetResult get = GetOne(store, key, bytes.size(), &got);
  return run.Expect(get.outcome == GetOutcome::kHit, "get of {} bytes: outcome {}, {}",
                    bytes.size(), static_cast<int>(get.outcome), get.status.ToString()) &&
         run.Expect(get.bytes == bytes.size(), "a hit of {} bytes says {}", bytes.size(),
                    get.bytes) &&
         run.Expect(got == bytes, "an object of {} bytes comes back changed", bytes.size());
}

bool Holds(ConformanceRun& run, std::string_view key, const Bytes& bytes) {
  return Holds(run, run.store(), key, bytes);
}

bool Lacks(ConformanceRun& run, std::string_view key) {
  Bytes got;
  const GetResult get = GetOne(run.store(), key, 16, &got);
  const StatResult stat = StatOne(run.store(), key);
  return run.Expect(get.outcome == GetOutcome::kMiss, "get of an absent object: outcome {}, {}",
                    static_cast<int>(get.outcome), get.status.ToString()) &&
         run.Expect(stat.status.ok() && !stat.found, "stat of an absent object: found {}, {}",
                    stat.found, stat.status.ToString());
}

void RunThreads(size_t count, const std::function<void(size_t)>& body) {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

void ItIsUpAndHasAName(ConformanceRun& run) {
  run.Expect(!run.store().name().empty(), "the name is empty");
  run.Expect(run.store().DescribeJson().starts_with('{'), "DescribeJson is no object: {}",
             run.store().DescribeJson());
  Store(run, run.Key("any"), PayloadOf("any", 100));
  const StoreHealth health = run.store().Health();
  run.Expect(health.state == StoreState::kUp, "Health after a put: {}", health.detail);
}

void ObjectsOfAllSizesComeBackWhole(ConformanceRun& run) {
  for (const size_t size :
       {size_t{0}, size_t{1}, 4 * kKiB - 1, 4 * kKiB, 4 * kKiB + 1, 64 * kKiB - 1, 64 * kKiB,
        64 * kKiB + 1, 256 * kKiB - 1, 256 * kKiB, 256 * kKiB + 1, 512 * kKiB, kMiB - 1, kMiB,
        kMiB + 1, kMiB + 8 * kKiB, kMiB + 8 * kKiB + 1, 8 * kMiB, 30 * kMiB}) {
    if (size > run.traits().largest_test_bytes) continue;
    const std::string key = run.Key(fmt::format("size_{}", size));
    const Bytes bytes = PayloadOf(key, size);
    if (!Store(run, key, bytes)) continue;
    const StatResult stat = StatOne(run.store(), key);
    run.Expect(stat.status.ok() && stat.found && stat.bytes == size,
               "stat of {} bytes: found {}, {} bytes, {}", size, stat.found, stat.bytes,
               stat.status.ToString());
    run.Expect(stat.version.has_value() == run.traits().versions, "stat has a version: {}",
               stat.version.has_value());
    GuardedBuffers target({size});
    const GetItem item{key, target.buffers()};
    const GetResult get = run.store().BatchGetIntoMultiBuffers({&item, 1}, {}).at(0);
    run.Expect(get.outcome == GetOutcome::kHit && get.bytes == size, "get of {} bytes: {}", size,
               get.status.ToString());
    run.Expect(target.Content() == bytes, "{} bytes come back changed", size);
    run.Expect(target.GuardsHold(), "a get of {} bytes wrote outside its buffers", size);
    run.Expect(get.version == stat.version, "get and stat of {} bytes tell two versions", size);
  }
}

void AbsentKeysAreMisses(ConformanceRun& run) {
  const std::string key = run.Key("absent");
  Lacks(run, key);
  const std::string_view keys[] = {key};
  const auto exists = run.store().BatchIsExist(keys, {});
  run.Expect(exists.size() == 1 && exists[0].status.ok() && !exists[0].found,
             "BatchIsExist finds what is not there");
  const RemoveResult removed = RemoveOne(run.store(), key);
  run.Expect(removed.outcome == RemoveOutcome::kAbsent, "removal of an absent object: {}, {}",
             static_cast<int>(removed.outcome), removed.status.ToString());
}

void EmptyBatchesAnswerNothing(ConformanceRun& run) {
  run.Expect(run.store().BatchIsExist({}, {}).empty(), "BatchIsExist");
  run.Expect(run.store().BatchStat({}, {}).empty(), "BatchStat");
  run.Expect(run.store().BatchGetIntoMultiBuffers({}, {}).empty(), "BatchGet");
  run.Expect(run.store().BatchPutFromMultiBuffers({}, {}).empty(), "BatchPut");
  run.Expect(run.store().BatchRemove({}, {}).empty(), "BatchRemove");
}

void ScatterAndGatherOverOddSplits(ConformanceRun& run) {
  const std::vector<std::vector<size_t>> splits = {
      {1},
      {0, 4095, 0, 1, 7},
      {4096, 4096, 4096},
      {3 * kMiB / 2},
      {kMiB, 1, kMiB - 1},
      // More than one system call takes (IOV_MAX is 1024).
      std::vector<size_t>(3000, 700),
      std::vector<size_t>(50, 4095)};
  const size_t size = 2 * kMiB + 100 * kKiB + 3;
  for (size_t i = 0; i < splits.size(); ++i) {
    const std::string key = run.Key(fmt::format("split_{}", i));
    const Bytes bytes = PayloadOf(key, size);
    const std::vector<ConstBuffer> sources = Cut(bytes, splits[i]);
    const PutItem put{key, sources, PutMode::kIfAbsent};
    const PutResult stored = run.store().BatchPutFromMultiBuffers({&put, 1}, {}).at(0);
    run.Expect(IsStored(run, stored.outcome), "put in split {}: {}", i, stored.status.ToString());
    for (size_t j = 0; j < splits.size(); ++j) {
      std::vector<size_t> sizes = splits[j];
      for (size_t& part : sizes) part = std::min(part, size);
      size_t rest = size;
      for (const size_t part : sizes) rest -= part;
      sizes.push_back(rest);
      GuardedBuffers target(sizes);
      const GetItem get{key, target.buffers()};
      const GetResult got = run.store().BatchGetIntoMultiBuffers({&get, 1}, {}).at(0);
      run.Expect(got.outcome == GetOutcome::kHit && target.Content() == bytes,
                 "put in split {} and read in split {}: outcome {}, {}", i, j,
                 static_cast<int>(got.outcome), got.status.ToString());
      run.Expect(target.GuardsHold(), "a read in split {} wrote outside its buffers", j);
    }
  }
}

void MixedBatchesAnswerEachItem(ConformanceRun& run) {
  const std::string a = run.Key("a");
  const std::string b = run.Key("b");
  const std::string none = run.Key("none");
  const std::string too_long(kMaxKeyBytes + 1, 'k');
  const Bytes bytes_a = PayloadOf("a", 100'000);
  const Bytes bytes_b = PayloadOf("b", 5000);
  const std::vector<std::string_view> put_keys = {a, "", b, too_long};
  const std::vector<ConstBuffer> sources = {bytes_a, bytes_a, bytes_b, bytes_b};
  const auto puts = run.store().BatchPut(put_keys, sources, {});
  if (!run.Expect(puts.size() == 4, "{} results for 4 puts", puts.size())) return;
  for (const size_t good : {0, 2}) run.Expect(IsStored(run, puts[good].outcome), "put {}", good);
  for (const size_t bad : {1, 3}) {
    run.Expect(
        puts[bad].outcome == PutOutcome::kFailed && puts[bad].status.code() == StatusCode::kInvalid,
        "put {} of a bad key: {}", bad, puts[bad].status.ToString());
  }

  const std::vector<std::string_view> keys = {a, none, a, b, "", too_long, b};
  const std::vector<size_t> sizes = {bytes_a.size(), 10, bytes_a.size(), 4999, 1, 1,
                                     bytes_b.size()};
  std::deque<GuardedBuffers> targets;
  std::vector<MutableBuffer> buffers;
  for (const size_t size : sizes) {
    buffers.push_back(targets.emplace_back(std::vector<size_t>{size}).buffers()[0]);
  }
  const auto gets = run.store().BatchGet(keys, buffers, {});
  if (!run.Expect(gets.size() == 7, "{} results for 7 gets", gets.size())) return;
  const GetOutcome expected[] = {GetOutcome::kHit,       GetOutcome::kMiss,   GetOutcome::kHit,
                                 GetOutcome::kWrongSize, GetOutcome::kFailed, GetOutcome::kFailed,
                                 GetOutcome::kHit};
  for (size_t i = 0; i < gets.size(); ++i) {
    run.Expect(gets[i].outcome == expected[i], "get {}: outcome {} instead of {}", i,
               static_cast<int>(gets[i].outcome), static_cast<int>(expected[i]));
    run.Expect(targets[i].GuardsHold(), "get {} wrote outside its buffer", i);
  }
  run.Expect(targets[0].Content() == bytes_a && targets[2].Content() == bytes_a, "bytes of a");
  run.Expect(targets[6].Content() == bytes_b, "bytes of b");
  for (const size_t bad : {4, 5}) {
    run.Expect(gets[bad].status.code() == StatusCode::kInvalid, "get {} of a bad key: {}", bad,
               gets[bad].status.ToString());
  }

  const auto stats = run.store().BatchStat(keys, {});
  if (!run.Expect(stats.size() == 7, "{} results for 7 stats", stats.size())) return;
  run.Expect(stats[0].found && stats[0].bytes == bytes_a.size(), "stat of a");
  run.Expect(!stats[1].found && stats[1].status.ok(), "stat of what is not there");
  run.Expect(stats[4].status.code() == StatusCode::kInvalid, "stat of an empty key");
  const std::vector<RemoveItem> removals = {{a, {}}, {none, {}}, {a, {}}, {"", {}}, {b, {}}};
  const auto removed = run.store().BatchRemove(removals, {});
  if (!run.Expect(removed.size() == 5, "{} results for 5 removals", removed.size())) return;
  run.Expect(removed[0].outcome == RemoveOutcome::kRemoved, "removal of a");
  run.Expect(removed[1].outcome == RemoveOutcome::kAbsent, "removal of what is not there");
  run.Expect(removed[3].status.code() == StatusCode::kInvalid, "removal of an empty key");
  run.Expect(removed[4].outcome == RemoveOutcome::kRemoved, "removal of b");
  if (!run.traits().immediate) return;
  run.Expect(removed[2].outcome == RemoveOutcome::kAbsent, "the second removal of a");
  Lacks(run, a);
  Lacks(run, b);
}

void ManyItemsFitInOneBatch(ConformanceRun& run) {
  constexpr size_t kItems = 200;
  std::vector<std::string> names;
  std::vector<Bytes> payloads;
  for (size_t i = 0; i < kItems; ++i) {
    names.push_back(run.Key(fmt::format("many_{}", i)));
    payloads.push_back(PayloadOf(names.back(), 1000 + i));
  }
  const std::vector<std::string_view> keys(names.begin(), names.end());
  const std::vector<ConstBuffer> sources(payloads.begin(), payloads.end());
  for (const PutResult& put : run.store().BatchPut(keys, sources, {})) {
    run.Expect(IsStored(run, put.outcome), "put: {}", put.status.ToString());
  }
  std::vector<Bytes> targets;
  for (const Bytes& payload : payloads) targets.emplace_back(payload.size());
  const std::vector<MutableBuffer> buffers(targets.begin(), targets.end());
  const auto gets = run.store().BatchGet(keys, buffers, {});
  for (size_t i = 0; i < gets.size(); ++i) {
    run.Expect(gets[i].outcome == GetOutcome::kHit && targets[i] == payloads[i], "get {}: {}", i,
               gets[i].status.ToString());
  }
}

void OfTheSameKeyInABatchTheFirstPutCounts(ConformanceRun& run) {
  const std::string key = run.Key("twice");
  const Bytes first = PayloadOf("first", 9000);
  const Bytes second = PayloadOf("second", 9000);
  const std::vector<std::string_view> keys = {key, key};
  const std::vector<ConstBuffer> sources = {first, second};
  const auto puts = run.store().BatchPut(keys, sources, {});
  run.Expect(IsStored(run, puts.at(0).outcome), "first put: {}", puts[0].status.ToString());
  run.Expect(IsKept(run, puts.at(1).outcome), "second put: outcome {}, {}",
             static_cast<int>(puts[1].outcome), puts[1].status.ToString());
  Holds(run, key, first);
}

void OfTheSameKeyInABatchTheLastReplacementStays(ConformanceRun& run) {
  if (!run.traits().immediate) return;
  const std::string key = run.Key("twice");
  const Bytes first = PayloadOf("first", 9000);
  const Bytes second = PayloadOf("second", 90'000);
  const ConstBuffer sources[] = {first, second};
  const PutItem items[] = {{key, std::span(sources).first(1), PutMode::kReplace},
                           {key, std::span(sources).last(1), PutMode::kReplace}};
  for (const PutResult& put : run.store().BatchPutFromMultiBuffers(items, {})) {
    run.Expect(IsStored(run, put.outcome), "put: {}", put.status.ToString());
  }
  Holds(run, key, second);
}

void PutIfAbsentKeepsWhatIsThere(ConformanceRun& run) {
  const std::string key = run.Key("kept");
  const Bytes first = PayloadOf("first", 70'000);
  Store(run, key, first);
  for (const size_t size : {size_t{70'000}, size_t{10}, 2 * kMiB}) {
    const PutResult put = PutOne(run.store(), key, PayloadOf("second", size));
    run.Expect(IsKept(run, put.outcome), "put over it: outcome {}, {}",
               static_cast<int>(put.outcome), put.status.ToString());
    Holds(run, key, first);
  }
}

void ReplaceTakesThePlaceOfWhatIsThere(ConformanceRun& run) {
  if (!run.traits().immediate) return;
  const std::string key = run.Key("replaced");
  for (const size_t size : {size_t{10}, 3 * kMiB, 2 * kMiB, size_t{0}, size_t{4096}}) {
    const Bytes bytes = PayloadOf("round", size);
    Store(run, key, bytes, PutMode::kReplace);
    Holds(run, key, bytes);
    const StatResult stat = StatOne(run.store(), key);
    run.Expect(stat.found && stat.bytes == size, "stat says {} bytes of {}", stat.bytes, size);
  }
}

void OfTwoWritersOneWins(ConformanceRun& run) {
  EmbeddingStore& other = run.Another();
  for (int round = 0; round < 20; ++round) {
    const std::string key = run.Key(fmt::format("race_{}", round));
    const size_t size = round % 2 == 0 ? 300'000 : 3 * kMiB;
    const Bytes payloads[] = {PayloadOf("one", size), PayloadOf("two", size)};
    PutResult puts[2];
    RunThreads(2,
               [&](size_t i) { puts[i] = PutOne(i == 0 ? run.store() : other, key, payloads[i]); });
    for (const PutResult& put : puts) {
      run.Expect(put.outcome != PutOutcome::kFailed, "a writer fails: {}", put.status.ToString());
    }
    if (!run.traits().tells_stored) continue;
    const bool first_won = puts[0].outcome == PutOutcome::kStored;
    run.Expect(first_won != (puts[1].outcome == PutOutcome::kStored),
               "outcomes {} and {}: not exactly one won", static_cast<int>(puts[0].outcome),
               static_cast<int>(puts[1].outcome));
    Holds(run, key, payloads[first_won ? 0 : 1]);
  }
}

// What exists while others write is whole: never empty, short, or of two writers.
void ReadersSeeWholeObjectsOrNone(ConformanceRun& run) {
  EmbeddingStore& other = run.Another();
  constexpr size_t kSize = 3 * kMiB;
  const Bytes payload = PayloadOf("whole", kSize);
  constexpr int kRounds = 10;
  std::vector<std::string> keys;
  for (int i = 0; i < kRounds; ++i) keys.push_back(run.Key(fmt::format("appears_{}", i)));
  RunThreads(4, [&](size_t thread) {
    for (const std::string& key : keys) {
      if (thread < 2) {
        const PutResult put = PutOne(thread == 0 ? run.store() : other, key, payload);
        run.Expect(put.outcome != PutOutcome::kFailed, "put: {}", put.status.ToString());
        continue;
      }
      Bytes got;
      GetResult get;
      const auto give_up = SteadyClock().Now() + std::chrono::seconds(30);
      do {
        const StatResult stat = StatOne(run.store(), key);
        run.Expect(!stat.found || stat.bytes == kSize, "stat of half an object: {}", stat.bytes);
        get = GetOne(thread == 2 ? run.store() : other, key, kSize, &got);
      } while (get.outcome == GetOutcome::kMiss && SteadyClock().Now() < give_up);
      run.Expect(get.outcome == GetOutcome::kHit && got == payload, "get: outcome {}, {}",
                 static_cast<int>(get.outcome), get.status.ToString());
    }
  });
}

void ReadersSeeTheOldObjectOrTheNew(ConformanceRun& run) {
  if (!run.traits().immediate) return;
  EmbeddingStore& other = run.Another();
  const std::string key = run.Key("swapped");
  constexpr size_t kSize = 2 * kMiB + 5;
  const Bytes payloads[] = {PayloadOf("even", kSize), PayloadOf("odd", kSize)};
  Store(run, key, payloads[0]);
  std::atomic<bool> stop = false;
  RunThreads(3, [&](size_t thread) {
    if (thread == 0) {
      for (size_t i = 1; i <= 40; ++i) Store(run, key, payloads[i % 2], PutMode::kReplace);
      stop = true;
      return;
    }
    Bytes got;
    while (!stop) {
      const GetResult get = GetOne(thread == 1 ? run.store() : other, key, kSize, &got);
      run.Expect(get.outcome == GetOutcome::kHit && (got == payloads[0] || got == payloads[1]),
                 "get while it is replaced: outcome {}, {}", static_cast<int>(get.outcome),
                 get.status.ToString());
    }
  });
}

void RemovalLeavesReadersWholeObjectsOrMisses(ConformanceRun& run) {
  EmbeddingStore& other = run.Another();
  const std::string key = run.Key("comes_and_goes");
  constexpr size_t kSize = 2 * kMiB;
  const Bytes payload = PayloadOf("comes and goes", kSize);
  std::atomic<bool> stop = false;
  RunThreads(3, [&](size_t thread) {
    if (thread == 0) {
      for (int i = 0; i < 40; ++i) {
        PutOne(run.store(), key, payload);
        const RemoveResult removed = RemoveOne(other, key);
        run.Expect(removed.outcome != RemoveOutcome::kFailed, "removal: {}",
                   removed.status.ToString());
      }
      stop = true;
      return;
    }
    Bytes got;
    while (!stop) {
      const GetResult get = GetOne(thread == 1 ? run.store() : other, key, kSize, &got);
      run.Expect(
          get.outcome == GetOutcome::kMiss || (get.outcome == GetOutcome::kHit && got == payload),
          "get while it is removed: outcome {}, {}", static_cast<int>(get.outcome),
          get.status.ToString());
    }
  });
}

void RemovalComparesVersions(ConformanceRun& run) {
  const std::string key = run.Key("versions");
  const Bytes bytes = PayloadOf("same", 5000);
  Store(run, key, bytes);
  if (!run.traits().versions) {
    const RemoveResult removed = RemoveOne(run.store(), key, ObjectVersion{1, 2});
    run.Expect(removed.outcome == RemoveOutcome::kFailed &&
                   removed.status.code() == StatusCode::kUnimplemented,
               "removal of a version by a store without: {}", removed.status.ToString());
    Holds(run, key, bytes);
    return;
  }
  const auto version = [&] { return StatOne(run.store(), key).version; };
  const auto remove = [&](std::optional<ObjectVersion> of) {
    return RemoveOne(run.Another(), key, of).outcome;
  };
  const auto first = version();
  Holds(run, key, bytes);
  run.Expect(version() == first, "a get changes the version");
  PutOne(run.store(), key, bytes);
  run.Expect(version() == first, "a put that finds it present changes the version");
  Store(run, key, bytes, PutMode::kReplace);
  run.Expect(remove(first) == RemoveOutcome::kChanged, "the version of a replaced object removes");
  Holds(run, key, bytes);
  const auto second = version();
  run.Expect(remove(second) == RemoveOutcome::kRemoved, "its own version does not remove");
  Lacks(run, key);
  run.Expect(remove(second) == RemoveOutcome::kAbsent, "a removed version is not absent");
  Store(run, key, bytes);
  for (const auto& old : {first, second}) {
    run.Expect(remove(old) == RemoveOutcome::kChanged, "the version of a removed object removes");
  }
  Holds(run, key, bytes);
}

void WrongLengthsAreToldAndNotServed(ConformanceRun& run) {
  for (const size_t size : {size_t{5000}, 2 * kMiB + 7}) {
    const std::string key = run.Key(fmt::format("length_{}", size));
    const Bytes bytes = PayloadOf(key, size);
    Store(run, key, bytes);
    for (const size_t wrong : {size_t{0}, size_t{1}, size - 1, size + 1, size + 4096, 2 * size}) {
      GuardedBuffers target({wrong});
      const GetItem item{key, target.buffers()};
      const GetResult get = run.store().BatchGetIntoMultiBuffers({&item, 1}, {}).at(0);
      run.Expect(get.outcome == GetOutcome::kWrongSize, "{} bytes into {}: outcome {}, {}", size,
                 wrong, static_cast<int>(get.outcome), get.status.ToString());
      run.Expect(get.bytes == 0 || get.bytes == size, "{} bytes into {}: says {}", size, wrong,
                 get.bytes);
      run.Expect(target.GuardsHold(), "{} bytes into {}: wrote outside the buffer", size, wrong);
    }
    Holds(run, key, bytes);
  }
}

// Calls every operation with limits that are already over.
void ExpectRefusal(ConformanceRun& run, const CallContext& context, StatusCode code) {
  const std::string there = run.Key("there");
  const std::string absent = run.Key("absent");
  const Bytes bytes = PayloadOf("there", 3000);
  Store(run, there, bytes);
  const std::string_view keys[] = {there, absent};
  const auto name = StatusCodeName(code);
  for (const StatResult& stat : run.store().BatchStat(keys, context)) {
    run.Expect(stat.status.code() == code, "stat is not {}: {}", name, stat.status.ToString());
  }
  for (const StatResult& stat : run.store().BatchIsExist(keys, context)) {
    run.Expect(stat.status.code() == code, "exist is not {}: {}", name, stat.status.ToString());
  }
  Bytes got;
  const GetResult get = GetOne(run.store(), there, bytes.size(), &got, context);
  run.Expect(get.outcome == GetOutcome::kFailed && get.status.code() == code, "get is not {}: {}",
             name, get.status.ToString());
  const PutResult put = PutOne(run.store(), absent, bytes, PutMode::kIfAbsent, context);
  run.Expect(put.outcome == PutOutcome::kFailed && put.status.code() == code, "put is not {}: {}",
             name, put.status.ToString());
  const RemoveItem removal{there, {}};
  const RemoveResult removed = run.store().BatchRemove({&removal, 1}, context).at(0);
  run.Expect(removed.outcome == RemoveOutcome::kFailed && removed.status.code() == code,
             "remove is not {}: {}", name, removed.status.ToString());
  Holds(run, there, bytes);
  Lacks(run, absent);
}

void PastDeadlinesAreAnsweredAsSuch(ConformanceRun& run) {
  CallContext context;
  context.deadline = SteadyClock().Now() - std::chrono::seconds(1);
  ExpectRefusal(run, context, StatusCode::kDeadlineExceeded);
}

void CancelledCallsAreAnsweredAsSuch(ConformanceRun& run) {
  const std::atomic<bool> cancelled = true;
  CallContext context;
  context.cancelled = &cancelled;
  ExpectRefusal(run, context, StatusCode::kCancelled);
}

void HostileKeysKeepToThemselves(ConformanceRun& run) {
  const std::string tag = run.Key("hostile");
  const std::string hex = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
  std::vector<std::string> keys = {"a/b",
                                   "a-SEP-b",
                                   "a%2Fb",
                                   "a\\b",
                                   "..",
                                   ".",
                                   "../../etc/passwd",
                                   "/etc/passwd",
                                   "a b",
                                   "a ",
                                   "a.",
                                   "a\n",
                                   "a\r\nDEL x\r\n",
                                   "{a}b",
                                   "a}b{",
                                   "*",
                                   "[a]?",
                                   "\xF0\x9F\x94\xA5",
                                   "\xFF\xFE",
                                   "case",
                                   "CASE",
                                   "Case",
                                   std::string("nul\0one", 7),
                                   std::string("nul\0two", 7),
                                   std::string("nul"),
                                   "emb_" + hex,
                                   "x" + hex,
                                   hex,
                                   "EMB_" + hex,
                                   std::string(kMaxKeyBytes - tag.size(), 'k'),
                                   std::string(kMaxKeyBytes - tag.size() - 1, 'k')};
  for (std::string& key : keys) key = tag + key;  // our own, whoever else uses the store
  keys.push_back(tag + std::string(1, '\0'));
  for (const std::string& key : keys) {
    run.Own(key);
    Store(run, key, PayloadOf(key, 777));
  }
  for (const std::string& key : keys) Holds(run, key, PayloadOf(key, 777));
  for (const std::string& key : keys) {
    const RemoveResult removed = RemoveOne(run.store(), key);
    run.Expect(removed.outcome == RemoveOutcome::kRemoved, "removal: {}",
               removed.status.ToString());
  }
}

// Keys of the form that EmberCache itself uses differ in the case of a digit at most.
void KeysThatDifferInCaseOnlyAreTwo(ConformanceRun& run) {
  std::string lower = "emb_";
  std::random_device random;
  for (int i = 0; i < 8; ++i) lower += fmt::format("{:07x}a", random() & 0xFFFFFFFU);
  std::string upper = lower;
  upper.back() = 'A';
  for (const std::string& key : {lower, upper}) {
    run.Own(key);
    Store(run, key, PayloadOf(key, 5000));
  }
  for (const std::string& key : {lower, upper}) Holds(run, key, PayloadOf(key, 5000));
}

void ObjectsOverTheLimitAreRefused(ConformanceRun& run) {
  const uint64_t limit = run.traits().max_object_bytes;
  if (limit == 0) return;
  const std::string key = run.Key("too_large");
  const Bytes block(kMiB);
  std::vector<ConstBuffer> sources(limit / kMiB, block);
  sources.push_back(std::span(block).first(limit % kMiB + 1));
  const PutItem item{key, sources, PutMode::kIfAbsent};
  const PutResult put = run.store().BatchPutFromMultiBuffers({&item, 1}, {}).at(0);
  run.Expect(put.outcome == PutOutcome::kFailed, "put over the limit: outcome {}",
             static_cast<int>(put.outcome));
  Lacks(run, key);
}

void WhatOneStorePutsAnotherGets(ConformanceRun& run) {
  if (!run.traits().shared) return;
  const std::string key = run.Key("passed_on");
  const Bytes bytes = PayloadOf(key, kMiB + 77);
  Store(run, key, bytes);
  EmbeddingStore& other = run.Another();
  Holds(run, other, key, bytes);
  run.Expect(IsKept(run, PutOne(other, key, bytes).outcome), "the other does not see it there");
  RemoveOne(other, key);
  Lacks(run, key);
}

void ThreadsDoNotDisturbEachOther(ConformanceRun& run) {
  EmbeddingStore& other = run.Another();
  RunThreads(6, [&](size_t thread) {
    EmbeddingStore& mine = thread % 2 == 0 ? run.store() : other;
    std::mt19937 random(static_cast<unsigned>(thread));
    std::map<std::string, Bytes> held;
    for (int i = 0; i < 60; ++i) {
      const std::string key = run.Key(fmt::format("thread_{}_{}", thread, random() % 10));
      if (!held.contains(key)) {
        const Bytes bytes = PayloadOf(fmt::format("{}{}", key, i), random() % 300'000);
        const PutResult put = PutOne(mine, key, bytes);
        run.Expect(IsStored(run, put.outcome), "put: outcome {}, {}", static_cast<int>(put.outcome),
                   put.status.ToString());
        held[key] = bytes;
      } else if (random() % 3 != 0) {
        Holds(run, mine, key, held[key]);
      } else {
        const RemoveResult removed = RemoveOne(mine, key);
        run.Expect(removed.outcome == RemoveOutcome::kRemoved, "removal: {}",
                   removed.status.ToString());
        if (run.traits().immediate) held.erase(key);
      }
    }
  });
}

void ListGivesEachObjectOnce(ConformanceRun& run) {
  if (!run.traits().lists) {
    const auto page = run.store().List("", 10, {});
    run.Expect(page.status().code() == StatusCode::kUnimplemented, "List: {}",
               page.status().ToString());
    return;
  }
  const auto list = [&](size_t limit) {
    std::map<std::string, uint64_t> seen;
    std::string cursor;
    do {
      const auto page = run.store().List(cursor, limit, {});
      if (!run.Expect(page.ok(), "List: {}", page.status().ToString())) break;
      run.Expect(page->objects.size() <= limit, "a page of {} objects, asked for {}",
                 page->objects.size(), limit);
      for (const ListedObject& object : page->objects) {
        run.Expect(seen.emplace(object.id, object.bytes).second, "'{}' is listed twice", object.id);
      }
      cursor = page->next_cursor;
    } while (!cursor.empty());
    return seen;
  };
  const auto before = list(1000);
  std::map<uint64_t, Bytes> put;
  for (size_t i = 0; i < 23; ++i) {
    const std::string key = run.Key(fmt::format("listed_{}", i));
    Store(run, key, PayloadOf(key, 100 + i));
    put[100 + i] = PayloadOf(key, 100 + i);
  }
  for (const size_t limit : {1, 7, 1000}) {
    auto seen = list(limit);
    for (const auto& [id, bytes] : before) seen.erase(id);
    run.Expect(seen.size() == put.size(), "{} new objects are listed in pages of {}, not {}",
               seen.size(), limit, put.size());
    for (const auto& [id, bytes] : seen) {
      if (!run.Expect(put.contains(bytes), "'{}' of {} bytes is listed", id, bytes)) continue;
      Holds(run, id, put[bytes]);
      const StatResult stat = StatOne(run.store(), id);
      run.Expect(stat.found && stat.bytes == bytes, "stat by the id '{}'", id);
      if (limit != 1000) continue;
      run.Expect(RemoveOne(run.store(), id).outcome == RemoveOutcome::kRemoved,
                 "removal by the id '{}'", id);
    }
  }
  run.Expect(list(1000) == before, "what was removed is still listed");
  run.Expect(run.store().List("", 0, {}).status().code() == StatusCode::kInvalid,
             "a page of no objects is not refused");
}

void CloseEndsCallsAndRefusesLaterOnes(ConformanceRun& run) {
  EmbeddingStore& store = run.Another();
  const std::string key = run.Key("closing");
  const Bytes bytes = PayloadOf(key, 2 * kMiB);
  PutOne(store, key, bytes);
  std::atomic<int> calls = 0;
  RunThreads(4, [&](size_t thread) {
    if (thread == 0) {
      while (calls < 20) std::this_thread::yield();
      const Status closed = store.Close(SteadyClock().Now() + std::chrono::seconds(30));
      run.Expect(closed.ok(), "Close: {}", closed.ToString());
      return;
    }
    while (true) {
      Bytes got;
      const GetResult get = GetOne(store, key, bytes.size(), &got);
      ++calls;
      if (get.status.code() == StatusCode::kCancelled) return;
      if (!run.Expect(get.outcome == GetOutcome::kHit && got == bytes,
                      "get while the store closes: outcome {}, {}", static_cast<int>(get.outcome),
                      get.status.ToString())) {
        return;
      }
    }
  });
  const PutResult put = PutOne(store, key, bytes);
  run.Expect(put.status.code() == StatusCode::kCancelled, "put into a closed store: {}",
             put.status.ToString());
  run.Expect(StatOne(store, key).status.code() == StatusCode::kCancelled, "stat, closed");
  run.Expect(RemoveOne(store, key).status.code() == StatusCode::kCancelled, "remove, closed");
  run.Expect(store.Health().state == StoreState::kDown, "a closed store is not down");
  run.Expect(store.Close(SteadyClock().Now()).ok(), "the second Close fails");
}

constexpr ConformanceCheck kChecks[] = {
#define CHECK_NAMED(name) {#name, name}
    CHECK_NAMED(ItIsUpAndHasAName),
    CHECK_NAMED(ObjectsOfAllSizesComeBackWhole),
    CHECK_NAMED(AbsentKeysAreMisses),
    CHECK_NAMED(EmptyBatchesAnswerNothing),
    CHECK_NAMED(ScatterAndGatherOverOddSplits),
    CHECK_NAMED(MixedBatchesAnswerEachItem),
    CHECK_NAMED(ManyItemsFitInOneBatch),
    CHECK_NAMED(OfTheSameKeyInABatchTheFirstPutCounts),
    CHECK_NAMED(OfTheSameKeyInABatchTheLastReplacementStays),
    CHECK_NAMED(PutIfAbsentKeepsWhatIsThere),
    CHECK_NAMED(ReplaceTakesThePlaceOfWhatIsThere),
    CHECK_NAMED(OfTwoWritersOneWins),
    CHECK_NAMED(ReadersSeeWholeObjectsOrNone),
    CHECK_NAMED(ReadersSeeTheOldObjectOrTheNew),
    CHECK_NAMED(RemovalLeavesReadersWholeObjectsOrMisses),
    CHECK_NAMED(RemovalComparesVersions),
    CHECK_NAMED(WrongLengthsAreToldAndNotServed),
    CHECK_NAMED(PastDeadlinesAreAnsweredAsSuch),
    CHECK_NAMED(CancelledCallsAreAnsweredAsSuch),
    CHECK_NAMED(HostileKeysKeepToThemselves),
    CHECK_NAMED(KeysThatDifferInCaseOnlyAreTwo),
    CHECK_NAMED(ObjectsOverTheLimitAreRefused),
    CHECK_NAMED(WhatOneStorePutsAnotherGets),
    CHECK_NAMED(ThreadsDoNotDisturbEachOther),
    CHECK_NAMED(ListGivesEachObjectOnce),
    CHECK_NAMED(CloseEndsCallsAndRefusesLaterOnes),
#undef CHECK_NAMED
};

}  // namespace

std::span<const ConformanceCheck> ConformanceChecks() {
  return kChecks;
}

}  // namespace embercache
