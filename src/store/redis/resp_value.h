#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/store/redis/resp_parser.h"

namespace embercache::redis {

// A whole reply in memory: for the small ones, not for stored payload.
struct RespValue {
  RespType type = RespType::kNull;
  int64_t integer = 0;
  std::string text;
  std::vector<RespValue> elements;  // of a map: key, value, key, value, …

  bool IsNull() const { return type == RespType::kNull; }
  bool IsError() const { return type == RespType::kError; }
  bool IsList() const {
    return type == RespType::kArray || type == RespType::kMap || type == RespType::kSet;
  }
  // The value of a map's field (RESP3), or of the field's name in a flat array (RESP2); null where
  // there is none.
  const RespValue* Find(std::string_view field) const;
};

// Puts the events of one reply together. Replies of more than `max_bytes` are refused.
class RespValueBuilder {
 public:
  explicit RespValueBuilder(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // Takes the next event of the reply; sets the parser's destination at kBulkBegin. False when the
  // reply is too big.
  bool Add(const RespEvent& event, RespParser& parser);
  // The reply, after an event with `ends_reply`. The builder is ready for the next one.
  RespValue Take();

 private:
  RespValue& Append(const RespEvent& event);

  struct Open {
    RespValue* value;
    uint64_t remaining;
  };
  const uint64_t max_bytes_;
  uint64_t bytes_ = 0;
  RespValue root_;
  bool has_root_ = false;
  std::vector<Open> open_;  // aggregates not yet complete, outermost first
  MutableBuffer bulk_;
};

}  // namespace embercache::redis
