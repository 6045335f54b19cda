// What is put comes back: sizes, splits, batches, modes.

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/checks.h"

namespace embercache {
namespace {

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
    if (size == 0 && !run.traits().empty_objects) {
      const PutResult put = PutOne(run.store(), run.Key("empty"), {});
      run.Expect(put.outcome == PutOutcome::kFailed && put.status.code() == StatusCode::kInvalid,
                 "an empty object is not refused: {}", put.status.ToString());
      continue;
    }
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

// What a store says of bytes while it is at work is so. Looks at those since `from` alone: the
// whole, each time, would take minutes.
void ExpectReceived(ConformanceRun& run, const GuardedBuffers& target, const Bytes& bytes,
                    uint64_t from, uint64_t count) {
  if (!run.Expect(count <= bytes.size(), "{} of {} bytes told", count, bytes.size())) return;
  uint64_t start = 0;  // of the buffer
  for (const ConstBuffer buffer : target.buffers()) {
    const uint64_t begin = std::max(from, start);
    const uint64_t end = std::min(count, start + buffer.size());
    run.Expect(begin >= end || std::memcmp(buffer.data() + (begin - start), bytes.data() + begin,
                                           end - begin) == 0,
               "{} bytes told that are not there", count);
    start += buffer.size();
  }
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
      uint64_t told = 0;
      const std::function<void(size_t, uint64_t)> received = [&](size_t, uint64_t count) {
        ExpectReceived(run, target, bytes, count < told ? 0 : told, count);
        told = count;
      };
      CallContext context;
      context.received = &received;
      const GetResult got = run.store().BatchGetIntoMultiBuffers({&get, 1}, context).at(0);
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
  for (const size_t good : {0U, 2U}) run.Expect(IsStored(run, puts[good].outcome), "put {}", good);
  for (const size_t bad : {1U, 3U}) {
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
  const auto caller = std::this_thread::get_id();
  const std::function<void(size_t, uint64_t)> received = [&](size_t index, uint64_t count) {
    run.Expect(std::this_thread::get_id() == caller, "get {} is told on another thread", index);
    if (!run.Expect(index < keys.size(), "item {} of {} is told", index, keys.size())) return;
    ExpectReceived(run, targets[index], index == 6 ? bytes_b : bytes_a, 0, count);
  };
  CallContext context;
  context.received = &received;
  const auto gets = run.store().BatchGet(keys, buffers, context);
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
  for (const size_t bad : {4U, 5U}) {
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
  if (!run.traits().immediate) return run.NotOffered();
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
  if (!run.traits().immediate) return run.NotOffered();
  const std::string key = run.Key("replaced");
  for (const size_t size : {size_t{10}, 3 * kMiB, 2 * kMiB, size_t{0}, size_t{4096}}) {
    if (size == 0 && !run.traits().empty_objects) continue;
    const Bytes bytes = PayloadOf("round", size);
    Store(run, key, bytes, PutMode::kReplace);
    Holds(run, key, bytes);
    const StatResult stat = StatOne(run.store(), key);
    run.Expect(stat.found && stat.bytes == size, "stat says {} bytes of {}", stat.bytes, size);
  }
}

constexpr ConformanceCheck kChecks[] = {
    {"ItIsUpAndHasAName", ItIsUpAndHasAName},
    {"ObjectsOfAllSizesComeBackWhole", ObjectsOfAllSizesComeBackWhole},
    {"AbsentKeysAreMisses", AbsentKeysAreMisses},
    {"EmptyBatchesAnswerNothing", EmptyBatchesAnswerNothing},
    {"ScatterAndGatherOverOddSplits", ScatterAndGatherOverOddSplits},
    {"MixedBatchesAnswerEachItem", MixedBatchesAnswerEachItem},
    {"ManyItemsFitInOneBatch", ManyItemsFitInOneBatch},
    {"OfTheSameKeyInABatchTheFirstPutCounts", OfTheSameKeyInABatchTheFirstPutCounts},
    {"OfTheSameKeyInABatchTheLastReplacementStays", OfTheSameKeyInABatchTheLastReplacementStays},
    {"PutIfAbsentKeepsWhatIsThere", PutIfAbsentKeepsWhatIsThere},
    {"ReplaceTakesThePlaceOfWhatIsThere", ReplaceTakesThePlaceOfWhatIsThere},
};

}  // namespace

std::span<const ConformanceCheck> DataChecks() {
  return kChecks;
}

}  // namespace embercache
