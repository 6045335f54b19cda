#pragma once

// What the checks are written with.

#include <cstddef>
#include <span>
#include <string_view>

#include "tests/conformance/payload.h"
#include "tests/conformance/store_conformance.h"

namespace embercache {

inline constexpr size_t kKiB = 1024;
inline constexpr size_t kMiB = 1024 * 1024;

std::span<const ConformanceCheck> DataChecks();
std::span<const ConformanceCheck> ContractChecks();
std::span<const ConformanceCheck> ConcurrencyChecks();

// Whether the outcome is that of a put that wrote, or of one that found its key there.
bool IsStored(const ConformanceRun& run, PutOutcome outcome);
bool IsKept(const ConformanceRun& run, PutOutcome outcome);

// Puts an object that has to become readable.
bool Store(ConformanceRun& run, std::string_view key, std::span<const std::byte> bytes,
           PutMode mode = PutMode::kIfAbsent);

// The object has to be there and be `bytes`.
bool Holds(ConformanceRun& run, EmbeddingStore& store, std::string_view key, const Bytes& bytes);
bool Holds(ConformanceRun& run, std::string_view key, const Bytes& bytes);

// There must be no object under the key.
bool Lacks(ConformanceRun& run, std::string_view key);

}  // namespace embercache
