#include "tests/conformance/checks.h"

namespace embercache {

bool IsStored(const ConformanceRun& run, PutOutcome outcome) {
  return outcome == PutOutcome::kStored ||
         (!run.traits().tells_stored && outcome == PutOutcome::kAccepted);
}

bool IsKept(const ConformanceRun& run, PutOutcome outcome) {
  return outcome == PutOutcome::kAlreadyPresent ||
         (!run.traits().tells_stored && outcome == PutOutcome::kAccepted);
}

bool Store(ConformanceRun& run, std::string_view key, std::span<const std::byte> bytes,
           PutMode mode) {
  const PutResult put = PutOne(run.store(), key, bytes, mode);
  return run.Expect(IsStored(run, put.outcome), "put of {} bytes: outcome {}, {}", bytes.size(),
                    static_cast<int>(put.outcome), put.status.ToString());
}

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

std::span<const ConformanceCheck> ConformanceChecks() {
  static const auto* const kChecks = [] {
    auto* checks = new std::vector<ConformanceCheck>();
    for (const auto part : {DataChecks(), ContractChecks(), ConcurrencyChecks()}) {
      checks->insert(checks->end(), part.begin(), part.end());
    }
    return checks;
  }();
  return *kChecks;
}

}  // namespace embercache
