// Several threads and stores at once.

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/checks.h"

namespace embercache {
namespace {

void RunThreads(size_t count, const std::function<void(size_t)>& body) {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
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
  if (!run.traits().immediate || !run.traits().changes_while_read) return run.NotOffered();
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
  if (!run.traits().changes_while_read) return run.NotOffered();
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

void WhatOneStorePutsAnotherGets(ConformanceRun& run) {
  if (!run.traits().shared) return run.NotOffered();
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
        const size_t least = run.traits().empty_objects ? 0 : 1;
        const Bytes bytes = PayloadOf(fmt::format("{}{}", key, i), least + random() % 300'000);
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

void CloseEndsCallsAndRefusesLaterOnes(ConformanceRun& run) {
  EmbeddingStore& store = run.Another();
  const std::string key = run.Key("closing");
  const Bytes bytes = PayloadOf(key, 2 * kMiB);
  PutOne(store, key, bytes);
  std::atomic<int> calls = 0;
  std::atomic<int> readers = 3;
  RunThreads(4, [&](size_t thread) {
    if (thread == 0) {
      // Readers that find something wrong end at once.
      while (calls < 20 && readers > 0) std::this_thread::yield();
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
        --readers;
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
    {"OfTwoWritersOneWins", OfTwoWritersOneWins},
    {"ReadersSeeWholeObjectsOrNone", ReadersSeeWholeObjectsOrNone},
    {"ReadersSeeTheOldObjectOrTheNew", ReadersSeeTheOldObjectOrTheNew},
    {"RemovalLeavesReadersWholeObjectsOrMisses", RemovalLeavesReadersWholeObjectsOrMisses},
    {"WhatOneStorePutsAnotherGets", WhatOneStorePutsAnotherGets},
    {"ThreadsDoNotDisturbEachOther", ThreadsDoNotDisturbEachOther},
    {"CloseEndsCallsAndRefusesLaterOnes", CloseEndsCallsAndRefusesLaterOnes},
};

}  // namespace

std::span<const ConformanceCheck> ConcurrencyChecks() {
  return kChecks;
}

}  // namespace embercache
