#include "src/store/redis/resp_parser.h"

// Invariants: payload_left_ > 0 exactly in kPayload; a destination is only ever set between
// kBulkBegin and the end of its payload; frames_[0, depth_) have remaining > 0; events inside an
// attribute never leave Next.

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

namespace embercache::redis {
namespace {

constexpr size_t kMaxLineBytes = 64 << 10;
constexpr uint64_t kMaxAggregate = 1 << 20;

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// For messages: what a peer sent may be anything.
std::string Quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text.substr(0, 40)) quoted += c >= 0x20 && c < 0x7f ? c : '?';
  return quoted + (text.size() > 40 ? "…'" : "'");
}

bool ParseInteger(std::string_view text, int64_t& value) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

RespEvent RespParser::Next(std::span<const std::byte>& input) {
  using Kind = RespEvent::Kind;
  for (;;) {
    // An attribute says something about the value after it; nobody here asks what.
    const bool hidden = attribute_depth_ > 0;
    const RespEvent event = Step(input);
    if (event.kind == Kind::kBroken) return event;
    if (event.kind != Kind::kNeedMore && !hidden) return event;
    if (event.kind == Kind::kNeedMore && input.empty()) return event;
  }
}

// kNeedMore with input left: there is no event in what was taken, go on.
RespEvent RespParser::Step(std::span<const std::byte>& input) {
  switch (state_) {
    case State::kType:
      if (input.empty()) return {};
      type_ = static_cast<char>(input.front());
      input = input.subspan(1);
      line_.clear();
      state_ = State::kLine;
      return {};
    case State::kLine: {
      std::string_view line;
      if (TakeLine(input, line)) return Interpret(line);
      return {.kind =
                  state_ == State::kBroken ? RespEvent::Kind::kBroken : RespEvent::Kind::kNeedMore};
    }
    case State::kPayload:
      return Payload(input);
    case State::kTail:
      return Tail(input);
    case State::kBroken:
      break;
  }
  return {.kind = RespEvent::Kind::kBroken};
}

void RespParser::SetDestination(std::span<const MutableBuffer> buffers) {
  destination_ = buffers;
  destination_offset_ = 0;
  AdvanceDestination(0);
}

void RespParser::DropDestination() {
  destination_ = {};
  destination_offset_ = 0;
}

size_t RespParser::DirectSpace(std::span<iovec> out) const {
  if (state_ != State::kPayload) return 0;
  uint64_t left = payload_left_;
  size_t offset = destination_offset_;
  size_t used = 0;
  for (const MutableBuffer& buffer : destination_) {
    if (used == out.size() || left == 0) break;
    const size_t bytes = std::min<uint64_t>(buffer.size() - offset, left);
    if (bytes > 0) out[used++] = {buffer.data() + offset, bytes};
    left -= bytes;
    offset = 0;
  }
  return used;
}

void RespParser::DirectFilled(size_t bytes) {
  AdvanceDestination(bytes);
  TakePayload(bytes);
}

bool RespParser::TakeLine(std::span<const std::byte>& input, std::string_view& line) {
  if (input.empty()) return false;
  const void* newline = std::memchr(input.data(), '\n', input.size());
  const size_t taken =
      newline ? static_cast<size_t>(static_cast<const std::byte*>(newline) - input.data()) + 1
              : input.size();
  std::string_view piece = AsText(input.first(taken));
  if (line_.size() + taken > kMaxLineBytes + 2) {
    Broken("a line of more than " + std::to_string(kMaxLineBytes) + " bytes");
    return false;
  }
  input = input.subspan(taken);
  if (!line_.empty() || !newline) piece = line_.append(piece);
  const size_t carriage_return = piece.find('\r');
  if (newline ? carriage_return != piece.size() - 2 || piece.size() < 2
              : carriage_return < piece.size() - 1) {
    Broken("a line that does not end in CR LF: " + Quoted(piece));
    return false;
  }
  if (!newline) return false;
  line = piece.substr(0, piece.size() - 2);
  state_ = State::kType;
  return true;
}

RespEvent RespParser::Interpret(std::string_view line) {
  switch (type_) {
    case '+':
      return Scalar(RespType::kSimpleString, line);
    case '-':
      return Scalar(RespType::kError, line);
    case ':':
      return Integer(line);
    case '_':
      return line.empty() ? Scalar(RespType::kNull, line) : Broken("a null with a value");
    case '#':
      if (line != "t" && line != "f") return Broken("boolean " + Quoted(line));
      return Scalar(RespType::kBoolean, line, line == "t" ? 1 : 0);
    case ',':
      return line.empty() ? Broken("an empty double") : Scalar(RespType::kDouble, line);
    case '(':
      return line.empty() ? Broken("an empty number") : Scalar(RespType::kBigNumber, line);
    case '$':
      return line == "-1" ? Scalar(RespType::kNull, {}) : Bulk(RespType::kBulk, line);
    case '!':
      return Bulk(RespType::kError, line);
    case '=':
      return Bulk(RespType::kVerbatim, line);
    case '*':
      return line == "-1" ? Scalar(RespType::kNull, {}) : Aggregate(RespType::kArray, line, 1);
    case '%':
      return Aggregate(RespType::kMap, line, 2);
    case '~':
      return Aggregate(RespType::kSet, line, 1);
    case '>':
      return depth_ > 0 ? Broken("a push inside a reply") : Aggregate(RespType::kPush, line, 1);
    case '|':
      return Attribute(line);
    default:
      return Broken("a value of unknown type " + Quoted({&type_, 1}));
  }
}

RespEvent RespParser::Scalar(RespType type, std::string_view text, int64_t integer) {
  return {.kind = RespEvent::Kind::kScalar,
          .type = type,
          .ends_reply = EndValue(),
          .integer = integer,
          .text = text};
}

RespEvent RespParser::Integer(std::string_view text) {
  int64_t value = 0;
  if (!ParseInteger(text, value)) return Broken("integer " + Quoted(text));
  return Scalar(RespType::kInteger, text, value);
}

RespEvent RespParser::Bulk(RespType type, std::string_view text) {
  uint64_t bytes = 0;
  if (!ParseLength(text, max_bulk_bytes_, bytes)) return Broken("a bulk of length " + Quoted(text));
  bulk_type_ = type;
  payload_left_ = bytes;
  tail_seen_ = 0;
  DropDestination();
  state_ = bytes > 0 ? State::kPayload : State::kTail;
  return {.kind = RespEvent::Kind::kBulkBegin, .type = type, .count = bytes};
}

RespEvent RespParser::Aggregate(RespType type, std::string_view text, uint64_t values_each) {
  uint64_t count = 0;
  if (!ParseLength(text, kMaxAggregate, count)) return Broken("an aggregate of " + Quoted(text));
  if (depth_ == kMaxDepth) return Broken("a reply of too many levels");
  count *= values_each;
  RespEvent event{.kind = RespEvent::Kind::kAggregateBegin, .type = type, .count = count};
  if (count == 0) {
    event.ends_reply = EndValue();
  } else {
    frames_[depth_++] = {count, false};
  }
  return event;
}

RespEvent RespParser::Attribute(std::string_view text) {
  uint64_t count = 0;
  if (!ParseLength(text, kMaxAggregate, count)) return Broken("an attribute of " + Quoted(text));
  if (depth_ == kMaxDepth) return Broken("a reply of too many levels");
  if (count > 0) {
    frames_[depth_++] = {2 * count, true};
    ++attribute_depth_;
  }
  return {};
}

RespEvent RespParser::Payload(std::span<const std::byte>& input) {
  const size_t bytes = std::min<uint64_t>(payload_left_, input.size());
  for (size_t copied = 0; copied < bytes && !destination_.empty();) {
    const MutableBuffer target = destination_.front().subspan(destination_offset_);
    const size_t piece = std::min(target.size(), bytes - copied);
    std::memcpy(target.data(), input.data() + copied, piece);
    AdvanceDestination(piece);
    copied += piece;
  }
  input = input.subspan(bytes);
  TakePayload(bytes);
  return {};
}

void RespParser::TakePayload(uint64_t bytes) {
  payload_left_ -= bytes;
  if (payload_left_ > 0) return;
  DropDestination();
  state_ = State::kTail;
}

RespEvent RespParser::Tail(std::span<const std::byte>& input) {
  while (tail_seen_ < 2 && !input.empty()) {
    if (static_cast<char>(input.front()) != "\r\n"[tail_seen_]) {
      return Broken("a bulk that is longer than it said");
    }
    input = input.subspan(1);
    ++tail_seen_;
  }
  if (tail_seen_ < 2) return {};
  state_ = State::kType;
  return {.kind = RespEvent::Kind::kBulkEnd, .type = bulk_type_, .ends_reply = EndValue()};
}

RespEvent RespParser::Broken(std::string why) {
  state_ = State::kBroken;
  DropDestination();
  error_ = std::move(why);
  return {.kind = RespEvent::Kind::kBroken};
}

bool RespParser::ParseLength(std::string_view text, uint64_t limit, uint64_t& length) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
  return error == std::errc() && end == text.data() + text.size() && length <= limit;
}

// True when the reply is complete.
bool RespParser::EndValue() {
  while (depth_ > 0) {
    Frame& frame = frames_[depth_ - 1];
    if (--frame.remaining > 0) return false;
    --depth_;
    if (frame.attribute) {
      --attribute_depth_;
      return false;  // the value that it belongs to is still to come
    }
  }
  return true;
}

void RespParser::AdvanceDestination(size_t bytes) {
  destination_offset_ += bytes;
  while (!destination_.empty() && destination_offset_ >= destination_.front().size()) {
    destination_offset_ -= destination_.front().size();
    destination_ = destination_.subspan(1);
  }
}

}  // namespace embercache::redis
