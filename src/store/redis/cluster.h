#pragma once

// What a client of a Cluster has to know: which server has a key, and where the answers send it.
// https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "embercache/status.h"
#include "src/store/redis/redis_config.h"
#include "src/store/redis/resp_value.h"

namespace embercache::redis {

inline constexpr size_t kSlots = 16384;

// CRC16 of the key, or of what stands between its first '{' and the next '}' where that is not
// empty, modulo kSlots.
uint16_t SlotOf(std::string_view key);

struct SlotRange {
  uint16_t first = 0;
  uint16_t last = 0;
  Endpoint master;
};

// From an answer to CLUSTER SLOTS by the server at `asked`, which means itself where it names no
// host.
Result<std::vector<SlotRange>> ParseSlotRanges(const RespValue& reply, const Endpoint& asked);

// An error that says who should be asked instead.
struct Redirection {
  bool ask = false;  // this once, with ASKING before it; else from now on
  uint16_t slot = 0;
  Endpoint endpoint;
};

std::optional<Redirection> ParseRedirection(std::string_view error, const Endpoint& asked);

// Any other error, as a Status: OOM and MISCONF are ResourceExhausted, WRONGTYPE is Corruption, all
// else is Unavailable, retryable where the server expects to recover.
Status StatusOfError(std::string_view error);

}  // namespace embercache::redis
