// However the bytes of a connection are cut, and whether payload is copied or received in place,
// the parser says the same and never writes outside the memory that it was given.
//
// Input: four bytes that choose the cuts, then the bytes of the connection.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "src/store/redis/resp_value.h"

namespace embercache::redis {
namespace {

constexpr uint64_t kMaxBulkBytes = 1 << 16;

// Where the payload of one bulk goes: pieces of heap memory, sometimes less than the bulk.
class Pages {
 public:
  explicit Pages(uint64_t bulk_bytes) {
    size_t left = bulk_bytes % 5 == 0 ? bulk_bytes / 2 : bulk_bytes;
    for (size_t piece = 1; left > 0; piece = piece * 3 + 1) {
      const size_t bytes = std::min(piece, left);
      pages_.emplace_back(bytes);
      left -= bytes;
    }
    for (std::vector<std::byte>& page : pages_) buffers_.emplace_back(page);
  }
  std::span<const MutableBuffer> buffers() const { return buffers_; }
  std::string Text() const {
    std::string text;
    for (const std::vector<std::byte>& page : pages_) {
      text.append(reinterpret_cast<const char*>(page.data()), page.size());
    }
    return text;
  }

 private:
  std::vector<std::vector<std::byte>> pages_;
  std::vector<MutableBuffer> buffers_;
};

class Listener {
 public:
  Listener() : parser_(kMaxBulkBytes) {}

  // Takes all of `input` through the parser's copying entry.
  void Feed(ConstBuffer input) {
    while (!broken_) {
      const RespEvent event = parser_.Next(input);
      if (event.kind == RespEvent::Kind::kNeedMore) return;
      Hear(event);
    }
  }

  // Puts as much of `input` as has a place there into the destination; returns how much.
  size_t FeedDirectly(ConstBuffer input) {
    std::array<iovec, 3> space;
    const size_t places = parser_.DirectSpace(space);
    size_t filled = 0;
    for (size_t i = 0; i < places; ++i) {
      const size_t bytes = std::min(space[i].iov_len, input.size() - filled);
      std::memcpy(space[i].iov_base, input.data() + filled, bytes);
      filled += bytes;
    }
    if (filled > 0) parser_.DirectFilled(filled);
    return filled;
  }

  bool broken() const { return broken_; }
  const std::vector<std::string>& heard() const { return heard_; }

 private:
  void Hear(const RespEvent& event) {
    std::string line = std::to_string(static_cast<int>(event.kind)) + " " +
                       std::to_string(static_cast<int>(event.type)) + " " +
                       std::to_string(event.integer) + " " + std::to_string(event.count) + " " +
                       std::string(event.text) + (event.ends_reply ? "." : "");
    if (event.kind == RespEvent::Kind::kBroken) {
      broken_ = true;
      if (parser_.error().empty()) std::abort();
    }
    if (event.kind == RespEvent::Kind::kBulkBegin) {
      if (event.count > kMaxBulkBytes) std::abort();
      pages_ = Pages(event.count);
      parser_.SetDestination(pages_.buffers());
    }
    if (event.kind == RespEvent::Kind::kBulkEnd) line += pages_.Text();
    heard_.push_back(std::move(line));
  }

  RespParser parser_;
  Pages pages_{0};
  bool broken_ = false;
  std::vector<std::string> heard_;
};

std::vector<std::string> HearWhole(ConstBuffer input) {
  Listener listener;
  listener.Feed(input);
  return listener.heard();
}

std::vector<std::string> HearInPieces(ConstBuffer input, uint32_t seed) {
  Listener listener;
  while (!input.empty() && !listener.broken()) {
    seed = seed * 1664525 + 1013904223;
    const size_t piece =
        std::min<size_t>(1 + (seed >> 24) % ((seed >> 16) % 4 == 0 ? 64 : 4), input.size());
    const size_t direct = listener.FeedDirectly(input.first(piece));
    if (direct == 0) listener.Feed(input.first(piece));
    input = input.subspan(direct > 0 ? direct : piece);
  }
  return listener.heard();
}

// The tree builder takes the same events, and must stay within its bound.
void BuildValues(ConstBuffer input) {
  RespParser parser(kMaxBulkBytes);
  RespValueBuilder builder(1 << 18);
  for (;;) {
    const RespEvent event = parser.Next(input);
    if (event.kind == RespEvent::Kind::kNeedMore || event.kind == RespEvent::Kind::kBroken) return;
    if (!builder.Add(event, parser)) return;
    if (event.ends_reply) (void)builder.Take();
  }
}

}  // namespace
}  // namespace embercache::redis

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace embercache::redis;  // NOLINT(google-build-using-namespace)
  if (size < 4) return 0;
  uint32_t seed = 0;
  std::memcpy(&seed, data, sizeof(seed));
  const embercache::ConstBuffer wire = std::as_bytes(std::span(data + 4, size - 4));
  const std::vector<std::string> whole = HearWhole(wire);
  if (HearInPieces(wire, seed) != whole || HearInPieces(wire, ~seed) != whole) {
    std::fputs("the parser's events depend on how the input was cut\n", stderr);
    std::abort();
  }
  BuildValues(wire);
  return 0;
}
