#pragma once

// What every EmbeddingStore has to do, as checks that run against any backend: those of this build
// in tests/conformance, a third party's plugin by `embercache conformance`. Independent of a test
// framework. The checks share the store with what else is in it, and remove what they put.

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "embercache/status.h"
#include "embercache/store.h"

namespace embercache {

// What a backend may do either way.
struct StoreTraits {
  bool shared = false;       // stores opened twice hold the same objects
  bool versions = true;      // objects have versions
  bool lists = true;         // List works
  bool tells_stored = true;  // puts tell stored from already present
  // Removals, replacements and put-if-absent are seen at once and by all; where not (a store whose
  // removals are lazy), the checks that rest on it are left out.
  bool immediate = true;
  // Objects of no bytes can be stored.
  bool empty_objects = true;
  // What is there is replaced as one, and is removed while others read it; where not (a store that
  // leases to readers what they read), the checks that rest on it are left out.
  bool changes_while_read = true;
  // The largest object; 0 where there is no such limit, or none that a check could pass.
  uint64_t max_object_bytes = 0;
  // Largest size the checks put.
  uint64_t largest_test_bytes = 30ULL << 20;
};

struct StoreUnderTest {
  std::string name;
  std::function<Result<std::unique_ptr<EmbeddingStore>>()> open;
  StoreTraits traits;
  // Says what is left beside the objects when no call runs; empty when it is clean. May be null.
  std::function<std::string()> leftovers;
};

// One check's view of the store. Thread-safe but for Another.
class ConformanceRun {
 public:
  explicit ConformanceRun(const StoreUnderTest& under_test);
  ~ConformanceRun();

  // Opens the store. False when that failed, which is a failure of the check.
  bool Start();
  // Removes what the check put, closes the stores, looks for leftovers.
  void Finish();

  EmbeddingStore& store() { return *stores_.front(); }
  // One more store over the same objects; the same one where traits().shared is false.
  EmbeddingStore& Another();
  const StoreTraits& traits() const { return under_test_.traits; }

  // A key that no other run uses, and that Finish removes.
  std::string Key(std::string_view name);
  // Has Finish remove this key.
  void Own(std::string key);

  // Keeps the message where the condition does not hold. Returns the condition.
  template <typename... Args>
  bool Expect(bool condition, fmt::format_string<Args...> message, Args&&... args) {
    if (!condition) Fail(fmt::format(message, std::forward<Args>(args)...));
    return condition;
  }
  void Fail(std::string message);
  std::vector<std::string> failures();

  // Says that the store does not offer what the check is about.
  void NotOffered() { offered_ = false; }
  bool offered() const { return offered_; }

 private:
  const StoreUnderTest& under_test_;
  const std::string prefix_;
  std::vector<std::unique_ptr<EmbeddingStore>> stores_;
  std::mutex mutex_;
  std::set<std::string> keys_;
  std::vector<std::string> failures_;
  bool offered_ = true;
};

struct ConformanceCheck {
  std::string_view name;  // an identifier that reads as a sentence
  void (*run)(ConformanceRun& run);
};

// All checks, in the order in which they build on each other.
std::span<const ConformanceCheck> ConformanceChecks();

struct ConformanceOutcome {
  std::vector<std::string> failures;  // none: the store conforms
  // False: it does not offer what the check is about, and no more than that it says so was checked.
  bool offered = true;
};

ConformanceOutcome RunConformanceCheck(const ConformanceCheck& check,
                                       const StoreUnderTest& under_test);

}  // namespace embercache
