#pragma once

#include <fmt/format.h>

#include <cstring>
#include <random>
#include <string>
#include <string_view>

#include "src/store/file/file_store.h"
#include "tests/conformance/payload.h"

namespace embercache {

// Bytes that tell by themselves, with the key they are under, whether they are whole: a generation,
// then what that generation of that key holds.
inline Bytes SelfDescribing(std::string_view key, uint64_t generation, size_t bytes) {
  Bytes payload = PayloadOf(fmt::format("{}#{}", key, generation), bytes);
  std::memcpy(payload.data(), &generation, sizeof generation);
  return payload;
}

inline bool IsWhole(std::string_view key, const Bytes& payload) {
  uint64_t generation = 0;
  if (payload.size() < sizeof generation) return false;
  std::memcpy(&generation, payload.data(), sizeof generation);
  return payload == SelfDescribing(key, generation, payload.size());
}

// Does one random thing to one of 40 keys. Returns what it found wrong, "" when nothing.
inline std::string DisturbStore(EmbeddingStore& store, std::mt19937_64& random) {
  const std::string key = fmt::format("emb_{:02x}{}", random() % 40 * 5, std::string(62, '0'));
  const uint64_t action = random() % 10;
  if (action < 5) {
    // Some large enough for direct I/O, were they aligned; some small.
    const size_t bytes = random() % 4 == 0 ? 600'000 : 16 + random() % 60'000;
    const PutMode mode = action < 2 ? PutMode::kReplace : PutMode::kIfAbsent;
    const PutResult put = PutOne(store, key, SelfDescribing(key, random(), bytes), mode);
    return put.outcome == PutOutcome::kFailed ? "put: " + put.status.ToString() : "";
  }
  if (action < 6) {
    const RemoveResult removed = RemoveOne(store, key);
    return removed.outcome == RemoveOutcome::kFailed ? "remove: " + removed.status.ToString() : "";
  }
  const StatResult stat = StatOne(store, key);
  if (!stat.status.ok()) return "stat: " + stat.status.ToString();
  if (!stat.found) return "";
  Bytes got;
  const GetResult get = GetOne(store, key, stat.bytes, &got);
  if (get.outcome == GetOutcome::kFailed) return "get: " + get.status.ToString();
  if (get.outcome == GetOutcome::kHit && !IsWhole(key, got)) return "wrong bytes under " + key;
  return "";
}

}  // namespace embercache
