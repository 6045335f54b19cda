#include "src/store/redis/resp_parser.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "src/store/redis/resp_value.h"

namespace embercache::redis {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ConstBuffer Bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Everything that a parser says about `wire`, given in the pieces that `cuts` make of it.
std::vector<std::string> Transcript(std::string_view wire, const std::vector<size_t>& cuts,
                                    uint64_t max_bulk_bytes = 1 << 20) {
  RespParser parser(max_bulk_bytes);
  std::vector<std::string> said;
  std::string bulk;
  MutableBuffer target;
  size_t begin = 0;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const size_t end = i < cuts.size() ? cuts[i] : wire.size();
    ConstBuffer input = Bytes(wire.substr(begin, end - begin));
    begin = end;
    for (;;) {
      const RespEvent event = parser.Next(input);
      if (event.kind == RespEvent::Kind::kNeedMore) break;
      const std::string done = event.ends_reply ? "." : "";
      if (event.kind == RespEvent::Kind::kBroken) {
        said.push_back("broken: " + parser.error());
        return said;
      }
      if (event.kind == RespEvent::Kind::kScalar) {
        said.push_back("scalar " + std::to_string(static_cast<int>(event.type)) + " " +
                       std::string(event.text) + " " + std::to_string(event.integer) + done);
      } else if (event.kind == RespEvent::Kind::kAggregateBegin) {
        said.push_back("aggregate " + std::to_string(static_cast<int>(event.type)) + " " +
                       std::to_string(event.count) + done);
      } else if (event.kind == RespEvent::Kind::kBulkBegin) {
        bulk.assign(event.count, '?');
        target = std::as_writable_bytes(std::span(bulk));
        parser.SetDestination({&target, 1});
      } else {
        said.push_back("bulk " + std::to_string(static_cast<int>(event.type)) + " " + bulk + done);
      }
    }
  }
  if (!parser.idle()) said.push_back("unfinished");
  return said;
}

std::vector<std::string> Transcript(std::string_view wire) {
  return Transcript(wire, {});
}

RespValue ParseValue(std::string_view wire) {
  RespParser parser(1 << 20);
  RespValueBuilder builder(1 << 20);
  ConstBuffer input = Bytes(wire);
  for (;;) {
    const RespEvent event = parser.Next(input);
    if (event.kind == RespEvent::Kind::kBroken || event.kind == RespEvent::Kind::kNeedMore) {
      ADD_FAILURE() << "no whole reply in " << wire << ": " << parser.error();
      return {};
    }
    EXPECT_TRUE(builder.Add(event, parser));
    if (event.ends_reply) return builder.Take();
  }
}

constexpr std::string_view kEveryType =
    "+OK\r\n-ERR no such thing\r\n:42\r\n:-7\r\n$5\r\nhello\r\n$0\r\n\r\n$-1\r\n*-1\r\n*0\r\n"
    "*3\r\n:1\r\n*2\r\n$1\r\na\r\n$-1\r\n+x\r\n_\r\n#t\r\n#f\r\n,3.5\r\n(12345678901234567890\r\n"
    "!9\r\nSYNTAX no\r\n=7\r\ntxt:abc\r\n%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n~2\r\n:1\r\n:2\r\n"
    ">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n|1\r\n+ttl\r\n$4\r\n3600\r\n$3\r\nend\r\n"
    "*2\r\n|1\r\n+seen\r\n*1\r\n:9\r\n:1\r\n:2\r\n$12\r\nwith\r\nbreaks\r\n";

TEST(RespParserTest, EveryTypeOfBothVersionsIsUnderstood) {
  EXPECT_THAT(
      Transcript(kEveryType),
      ElementsAre("scalar 1 OK 0.", "scalar 2 ERR no such thing 0.", "scalar 3 42 42.",
                  "scalar 3 -7 -7.", "bulk 7 hello.", "bulk 7 .", "scalar 0  0.", "scalar 0  0.",
                  "aggregate 9 0.", "aggregate 9 3", "scalar 3 1 1", "aggregate 9 2", "bulk 7 a",
                  "scalar 0  0", "scalar 1 x 0.", "scalar 0  0.", "scalar 4 t 1.", "scalar 4 f 0.",
                  "scalar 5 3.5 0.", "scalar 6 12345678901234567890 0.", "bulk 2 SYNTAX no.",
                  "bulk 8 txt:abc.", "aggregate 10 4", "scalar 1 a 0", "scalar 3 1 1",
                  "scalar 1 b 0", "aggregate 9 1", "scalar 3 2 2.", "aggregate 11 2",
                  "scalar 3 1 1", "scalar 3 2 2.", "aggregate 12 2", "scalar 1 invalidate 0",
                  "aggregate 9 1", "bulk 7 k.", "bulk 7 end.", "aggregate 9 2", "scalar 3 1 1",
                  "scalar 3 2 2.", "bulk 7 with\r\nbreaks."));
}

TEST(RespParserTest, WhereTheBytesAreCutMakesNoDifference) {
  const std::vector<std::string> whole = Transcript(kEveryType);
  for (size_t first = 0; first <= kEveryType.size(); ++first) {
    ASSERT_EQ(Transcript(kEveryType, {first}), whole) << "cut at " << first;
    for (size_t second = first; second <= std::min(first + 12, kEveryType.size()); ++second) {
      ASSERT_EQ(Transcript(kEveryType, {first, second}), whole) << first << ", " << second;
    }
  }
  std::vector<size_t> everywhere(kEveryType.size());
  for (size_t i = 0; i < everywhere.size(); ++i) everywhere[i] = i;
  EXPECT_EQ(Transcript(kEveryType, everywhere), whole);
}

TEST(RespParserTest, WhatIsNotRespIsRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"HTTP/1.1 400\r\n", "unknown type 'H'"},
      {"\r\n", "CR LF"},
      {":12x\r\n", "integer '12x'"},
      {":\r\n", "integer ''"},
      {":99999999999999999999\r\n", "integer"},
      {":+-1\r\n", "integer"},
      {"$-2\r\n", "length '-2'"},
      {"$+1\r\n", "length '+1'"},
      {"$1048577\r\n", "length '1048577'"},
      {"$?\r\n", "length '?'"},
      {"*-2\r\n", "aggregate"},
      {"*1048577\r\n", "aggregate"},
      {"#x\r\n", "boolean 'x'"},
      {"_x\r\n", "null"},
      {"+a\nb\r\n", "CR LF"},
      {"+a\rb\r\n", "CR LF"},
      {"$3\r\nabcd\r\n", "longer"},
      {"$3\r\nabc\rx", "longer"},
      {"*1\r\n>1\r\n+x\r\n", "push inside"},
      {"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", "levels"},
      {"+" + std::string(70000, 'x') + "\r\n", "65536"},
  };
  for (const auto& [wire, why] : cases) {
    const std::vector<std::string> whole = Transcript(wire);
    ASSERT_THAT(whole.back(), HasSubstr("broken: ")) << wire;
    EXPECT_THAT(whole.back(), HasSubstr(why)) << wire;
    for (size_t cut = 0; cut < std::min<size_t>(wire.size(), 64); ++cut) {
      EXPECT_THAT(Transcript(wire, {cut}).back(), HasSubstr("broken: ")) << wire << " at " << cut;
    }
  }
}

TEST(RespParserTest, NothingFollowsAfterTheStreamBroke) {
  RespParser parser(16);
  ConstBuffer input = Bytes("?\r\n+OK\r\n");
  EXPECT_EQ(parser.Next(input).kind, RespEvent::Kind::kBroken);
  EXPECT_EQ(parser.Next(input).kind, RespEvent::Kind::kBroken);
  ConstBuffer more = Bytes("+OK\r\n");
  EXPECT_EQ(parser.Next(more).kind, RespEvent::Kind::kBroken);
}

// Receives `wire` as a socket would give it, in pieces of `piece` bytes, straight into `buffers`.
void ReceiveDirectly(RespParser& parser, std::string_view wire, size_t piece,
                     std::span<const MutableBuffer> buffers, size_t* through_next) {
  size_t position = 0;
  while (position < wire.size()) {
    std::array<iovec, 2> space;
    const size_t places = parser.DirectSpace(space);
    size_t direct = 0;
    for (size_t i = 0; i < places && direct < piece && position < wire.size(); ++i) {
      const size_t bytes = std::min({space[i].iov_len, piece - direct, wire.size() - position});
      std::memcpy(space[i].iov_base, wire.data() + position, bytes);
      position += bytes;
      direct += bytes;
    }
    if (direct > 0) {
      parser.DirectFilled(direct);
      continue;
    }
    ConstBuffer input = Bytes(wire.substr(position, piece));
    position += input.size();
    *through_next += input.size();
    for (RespEvent event = parser.Next(input); event.kind != RespEvent::Kind::kNeedMore;
         event = parser.Next(input)) {
      ASSERT_NE(event.kind, RespEvent::Kind::kBroken) << parser.error();
      if (event.kind == RespEvent::Kind::kBulkBegin) parser.SetDestination(buffers);
    }
  }
}

TEST(RespParserTest, PayloadGoesStraightIntoTheBuffersOfTheCaller) {
  const std::string payload = "0123456789abcdefghijklmnopqrstuvwxyz";
  const std::string wire = "$36\r\n" + payload + "\r\n";
  for (size_t piece = 1; piece <= wire.size(); ++piece) {
    std::string page1(10, '.'), page2(20, '.'), page3(6, '.');
    const std::vector<MutableBuffer> buffers = {std::as_writable_bytes(std::span(page1)),
                                                {},
                                                std::as_writable_bytes(std::span(page2)),
                                                std::as_writable_bytes(std::span(page3))};
    RespParser parser(1 << 20);
    size_t through_next = 0;
    ReceiveDirectly(parser, wire, piece, buffers, &through_next);
    ASSERT_TRUE(parser.idle());
    ASSERT_EQ(page1 + page2 + page3, payload);
    if (piece == 1) {
      EXPECT_EQ(through_next, wire.size() - payload.size());
    }
  }
}

TEST(RespParserTest, BytesBeyondTheDestinationAreDropped) {
  for (size_t piece = 1; piece < 32; ++piece) {
    std::string head(4, '.');
    const MutableBuffer buffer = std::as_writable_bytes(std::span(head));
    RespParser parser(1 << 20);
    size_t through_next = 0;
    ReceiveDirectly(parser, "$10\r\nabcdefghij\r\n", piece, {&buffer, 1}, &through_next);
    EXPECT_TRUE(parser.idle());
    EXPECT_EQ(head, "abcd");
  }
}

TEST(RespParserTest, ADroppedDestinationIsNotTouchedAgain) {
  std::string page(8, '.');
  const MutableBuffer buffer = std::as_writable_bytes(std::span(page));
  RespParser parser(1 << 20);
  ConstBuffer input = Bytes("$8\r\n");
  ASSERT_EQ(parser.Next(input).kind, RespEvent::Kind::kBulkBegin);
  parser.SetDestination({&buffer, 1});
  input = Bytes("abc");
  ASSERT_EQ(parser.Next(input).kind, RespEvent::Kind::kNeedMore);
  parser.DropDestination();
  std::array<iovec, 4> space;
  EXPECT_EQ(parser.DirectSpace(space), 0U);
  input = Bytes("defgh\r\n+OK\r\n");
  EXPECT_EQ(parser.Next(input).kind, RespEvent::Kind::kBulkEnd);
  EXPECT_EQ(page, "abc.....");
  EXPECT_EQ(parser.Next(input).text, "OK");
}

TEST(RespValueTest, ARepliesTreeIsBuilt) {
  const RespValue reply = ParseValue(
      "*3\r\n*3\r\n:0\r\n:5460\r\n*2\r\n$9\r\n127.0.0.1\r\n:7000\r\n*0\r\n%2\r\n+mode\r\n"
      "+cluster\r\n$5\r\nproto\r\n:3\r\n");
  ASSERT_EQ(reply.elements.size(), 3U);
  ASSERT_EQ(reply.elements[0].elements.size(), 3U);
  EXPECT_EQ(reply.elements[0].elements[1].integer, 5460);
  EXPECT_EQ(reply.elements[0].elements[2].elements[0].text, "127.0.0.1");
  EXPECT_TRUE(reply.elements[1].elements.empty());
  ASSERT_NE(reply.elements[2].Find("mode"), nullptr);
  EXPECT_EQ(reply.elements[2].Find("mode")->text, "cluster");
  EXPECT_EQ(reply.elements[2].Find("proto")->integer, 3);
  EXPECT_EQ(reply.elements[2].Find("role"), nullptr);
}

TEST(RespValueTest, AReplyTooBigForMemoryIsRefused) {
  RespParser parser(1 << 20);
  RespValueBuilder builder(1000);
  ConstBuffer input = Bytes("$2000\r\n");
  EXPECT_FALSE(builder.Add(parser.Next(input), parser));
}

}  // namespace
}  // namespace embercache::redis
