// The edges of the contract: versions, lengths, limits, keys, lists.

#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/conformance/checks.h"

namespace embercache {
namespace {

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
    return run.NotOffered();
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
  if (limit == 0) return run.NotOffered();
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

void ListGivesEachObjectOnce(ConformanceRun& run) {
  if (!run.traits().lists) {
    const auto page = run.store().List("", 10, {});
    run.Expect(page.status().code() == StatusCode::kUnimplemented, "List: {}",
               page.status().ToString());
    return run.NotOffered();
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
  for (const size_t limit : {1U, 7U, 1000U}) {
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

constexpr ConformanceCheck kChecks[] = {
    {"RemovalComparesVersions", RemovalComparesVersions},
    {"WrongLengthsAreToldAndNotServed", WrongLengthsAreToldAndNotServed},
    {"PastDeadlinesAreAnsweredAsSuch", PastDeadlinesAreAnsweredAsSuch},
    {"CancelledCallsAreAnsweredAsSuch", CancelledCallsAreAnsweredAsSuch},
    {"HostileKeysKeepToThemselves", HostileKeysKeepToThemselves},
    {"KeysThatDifferInCaseOnlyAreTwo", KeysThatDifferInCaseOnlyAreTwo},
    {"ObjectsOverTheLimitAreRefused", ObjectsOverTheLimitAreRefused},
    {"ListGivesEachObjectOnce", ListGivesEachObjectOnce},
};

}  // namespace

std::span<const ConformanceCheck> ContractChecks() {
  return kChecks;
}

}  // namespace embercache
