#pragma once

// RESP2 and RESP3 (https://redis.io/docs/latest/develop/reference/protocol-spec/) without I/O.

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "embercache/store.h"

namespace embercache::redis {

enum class RespType : uint8_t {
  kNull,  // of RESP3, and the null bulk and null array of RESP2
  kSimpleString,
  kError,  // simple and bulk
  kInteger,
  kBoolean,
  kDouble,
  kBigNumber,
  kBulk,
  kVerbatim,
  kArray,
  kMap,
  kSet,
  kPush,  // not an answer to anything; only between replies
};

struct RespEvent {
  enum class Kind : uint8_t {
    kNeedMore,        // the input is used up
    kScalar,          // a value on one line: `text`, and `integer` for kInteger and kBoolean
    kAggregateBegin,  // `count` values follow (two a pair of a map)
    kBulkBegin,       // `count` bytes follow; now is the time for SetDestination
    kBulkEnd,         // they have arrived
    kBroken,          // not RESP; see RespParser::error. Nothing follows
  };
  Kind kind = Kind::kNeedMore;
  RespType type = RespType::kNull;
  bool ends_reply = false;  // the reply that this event belongs to is complete with it
  int64_t integer = 0;
  uint64_t count = 0;
  std::string_view text{};  // valid until the next call
};

// Turns the bytes of one connection into events. It holds no payload: the bytes of a bulk go to
// memory that its caller names, by a copy out of `Next`'s input or, between `DirectSpace` and
// `DirectFilled`, without one.
//
// Bounds: a bulk has at most `max_bulk_bytes`, a line 64 KiB, an aggregate 2^20 values and eight
// levels. Attributes (`|`) are dropped; streamed types, which no server sends, are refused.
// Not thread-safe.
class RespParser {
 public:
  explicit RespParser(uint64_t max_bulk_bytes) : max_bulk_bytes_(max_bulk_bytes) {}

  // Takes bytes off the front of `input`, up to the end of one event.
  RespEvent Next(std::span<const std::byte>& input);

  // Where the bytes of the bulk just begun go, one buffer after the other; what exceeds their sum
  // is dropped, as is the whole bulk without this call. The span and the memory have to live until
  // kBulkEnd or DropDestination.
  // REQUIRES: the last event was kBulkBegin.
  void SetDestination(std::span<const MutableBuffer> buffers);
  // Forgets the destination; what is still to come of the bulk is dropped. Always allowed.
  void DropDestination();

  // Fills `out` with the places where the next bytes of the connection belong, and returns how
  // many. What comes after these bytes has to go through Next, unless `out` was filled up.
  size_t DirectSpace(std::span<iovec> out) const;
  // So many bytes have been put there, in order.
  void DirectFilled(size_t bytes);

  // Bytes that are sure to come: the rest of the bulk just begun.
  uint64_t payload_left() const { return payload_left_; }
  // No reply has begun that has not ended.
  bool idle() const { return state_ == State::kType && depth_ == 0; }
  // Why kBroken came.
  const std::string& error() const { return error_; }

 private:
  enum class State : uint8_t { kType, kLine, kPayload, kTail, kBroken };
  struct Frame {
    uint64_t remaining;
    bool attribute;
  };
  static constexpr size_t kMaxDepth = 8;

  RespEvent Step(std::span<const std::byte>& input);
  bool TakeLine(std::span<const std::byte>& input, std::string_view& line);
  RespEvent Interpret(std::string_view line);
  RespEvent Scalar(RespType type, std::string_view text, int64_t integer = 0);
  RespEvent Integer(std::string_view text);
  RespEvent Bulk(RespType type, std::string_view text);
  RespEvent Aggregate(RespType type, std::string_view text, uint64_t values_each);
  RespEvent Attribute(std::string_view text);
  RespEvent Payload(std::span<const std::byte>& input);
  void TakePayload(uint64_t bytes);
  RespEvent Tail(std::span<const std::byte>& input);
  RespEvent Broken(std::string why);
  bool ParseLength(std::string_view text, uint64_t limit, uint64_t& length);
  bool EndValue();
  void AdvanceDestination(size_t bytes);

  const uint64_t max_bulk_bytes_;
  State state_ = State::kType;
  char type_ = 0;
  std::string line_;  // of a line that came in pieces
  std::array<Frame, kMaxDepth> frames_{};
  size_t depth_ = 0;
  size_t attribute_depth_ = 0;

  RespType bulk_type_ = RespType::kBulk;
  uint64_t payload_left_ = 0;
  size_t tail_seen_ = 0;
  std::span<const MutableBuffer> destination_;  // what is left of it
  size_t destination_offset_ = 0;               // in its first buffer
  std::string error_;
};

}  // namespace embercache::redis
