#include "src/store/redis/object.h"

#include <gmock/gmock.h>

#include <cstring>
#include <set>
#include <string>

#include "src/store/redis/cluster.h"

namespace embercache::redis {
namespace {

using ::testing::HasSubstr;

Head ManifestOf(uint64_t bytes) {
  return {.kind = HeadKind::kManifest,
          .key_check = 0x1122334455667788,
          .generation = {0xa1a2a3a4a5a6a7a8, 0xb1b2b3b4b5b6b7b8},
          .object_bytes = bytes,
          .chunk_index = 0};
}

TEST(RedisObjectTest, HeadsComeBackAsTheyWere) {
  Head chunk = ManifestOf(5 << 20);
  chunk.kind = HeadKind::kChunk;
  chunk.chunk_index = 4;
  Head whole = ManifestOf(1000);
  whole.kind = HeadKind::kWhole;
  for (const Head& head : {whole, ManifestOf(kMaxWholeBytes + 1), chunk}) {
    const auto decoded = Head::Decode(head.Encode());
    ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
    EXPECT_EQ(*decoded, head);
  }
}

TEST(RedisObjectTest, TheBytesOfAHeadAreThoseOfTheDocument) {
  const auto bytes = ManifestOf(0x300000).Encode();
  const unsigned char expected[kHeadBytes] = {
      'E',  'M',  'B',  'R',  1,    2,    0,    0,    0x88, 0x77, 0x66, 0x55,
      0x44, 0x33, 0x22, 0x11, 0xb8, 0xb7, 0xb6, 0xb5, 0xb4, 0xb3, 0xb2, 0xb1,
      0xa8, 0xa7, 0xa6, 0xa5, 0xa4, 0xa3, 0xa2, 0xa1, 0,    0,    0x30, 0,
      0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0};
  EXPECT_EQ(std::memcmp(bytes.data(), expected, kHeadBytes), 0);
}

TEST(RedisObjectTest, WhatIsNoHeadIsRefused) {
  EXPECT_EQ(Head::Decode({}).status().code(), StatusCode::kCorruption);
  auto bytes = ManifestOf(5 << 20).Encode();
  EXPECT_EQ(Head::Decode(std::span(bytes).first(47)).status().code(), StatusCode::kCorruption);
  auto other = bytes;
  other[0] = std::byte{'X'};
  EXPECT_EQ(Head::Decode(other).status().code(), StatusCode::kCorruption);
  other = bytes;
  other[4] = std::byte{2};
  EXPECT_EQ(Head::Decode(other).status().code(), StatusCode::kUnimplemented);
}

TEST(RedisObjectTest, HeadsThatContradictThemselvesAreRefused) {
  Head small_manifest = ManifestOf(kMaxWholeBytes);
  Head large_whole = ManifestOf(kMaxWholeBytes + 1);
  large_whole.kind = HeadKind::kWhole;
  Head beyond = ManifestOf(3 << 20);
  beyond.kind = HeadKind::kChunk;
  beyond.chunk_index = 3;
  Head numbered = ManifestOf(3 << 20);
  numbered.chunk_index = 1;
  for (const Head& head :
       {small_manifest, large_whole, beyond, numbered, ManifestOf(kMaxObjectBytes + 1)}) {
    EXPECT_EQ(Head::Decode(head.Encode()).status().code(), StatusCode::kCorruption);
  }
}

TEST(RedisObjectTest, OrdinaryKeysKeepTheirName) {
  EXPECT_EQ(RedisKey("emb_0123abcd"), "emb_0123abcd");
  EXPECT_EQ(RedisKey(std::string_view("a\0b\r\n", 5)), std::string_view("a\0b\r\n", 5));
}

TEST(RedisObjectTest, NoTwoKeysMeetAndEachIsFoundAgain) {
  std::set<std::string> names;
  const std::vector<std::string> keys = {"a",    "{a}",      "{",       "}",     "hex_7b",
                                         "hex_", "hex_617b", "{a}:0:1", "a{b}c", "hex_zz"};
  for (const std::string& key : keys) {
    const std::string name = RedisKey(key);
    EXPECT_TRUE(names.insert(name).second) << key;
    EXPECT_EQ(KeyOfRedisKey(name), key);
  }
}

TEST(RedisObjectTest, NamesOfOthersAreNoKeys) {
  EXPECT_EQ(KeyOfRedisKey(ChunkKey("emb_a", {1, 2}, 3)), std::nullopt);
  EXPECT_EQ(KeyOfRedisKey("hex_61"), std::nullopt);  // "a" has no need of it
  EXPECT_EQ(KeyOfRedisKey("hex_7"), std::nullopt);
  EXPECT_EQ(KeyOfRedisKey(""), std::nullopt);
  EXPECT_EQ(KeyOfRedisKey(std::string(kMaxKeyBytes + 1, 'k')), std::nullopt);
}

TEST(RedisObjectTest, AnObjectsKeysShareASlot) {
  for (const std::string key : {"emb_0123", "{", "a{b}c", "}{", "{}x"}) {
    const std::string name = RedisKey(key);
    for (const std::string& chunk : ChunkKeys(name, NewGeneration(), 3 << 20)) {
      EXPECT_EQ(SlotOf(chunk), SlotOf(name)) << key;
    }
  }
}

TEST(RedisObjectTest, ChunksCoverTheObjectAndNoMore) {
  EXPECT_EQ(ChunkCount(kMaxWholeBytes), 0U);
  for (const uint64_t bytes : {kMaxWholeBytes + 1, 2 * kChunkBytes, 2 * kChunkBytes + 1}) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < ChunkCount(bytes); ++i) {
      EXPECT_GT(BytesOfChunk(bytes, i), 0U);
      EXPECT_LE(BytesOfChunk(bytes, i), kChunkBytes);
      sum += BytesOfChunk(bytes, i);
    }
    EXPECT_EQ(sum, bytes);
  }
}

TEST(RedisObjectTest, SlicesOfBuffersAreTheirBytesInOrder) {
  const std::string text = "abcdefghij";
  const ConstBuffer all = std::as_bytes(std::span(text));
  const std::vector<ConstBuffer> buffers = {all.first(3), {}, all.subspan(3, 4), all.last(3)};
  for (size_t begin = 0; begin <= text.size(); ++begin) {
    for (size_t bytes = 0; begin + bytes <= text.size(); ++bytes) {
      std::string joined;
      for (const ConstBuffer& piece : Slice(std::span(buffers), begin, bytes)) {
        joined.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      }
      EXPECT_EQ(joined, text.substr(begin, bytes));
    }
  }
}

TEST(RedisObjectTest, GenerationsDiffer) {
  EXPECT_NE(NewGeneration(), NewGeneration());
}

TEST(RedisClusterTest, SlotsAreThoseOfTheSpecification) {
  EXPECT_EQ(SlotOf("123456789"), 0x31c3);
  EXPECT_EQ(SlotOf("{user1000}.following"), SlotOf("{user1000}.followers"));
  EXPECT_EQ(SlotOf("{user1000}.following"), SlotOf("user1000"));
  EXPECT_EQ(SlotOf("foo{{bar}}zap"), SlotOf("{bar"));
  EXPECT_EQ(SlotOf("foo{bar}{zap}"), SlotOf("bar"));
  EXPECT_NE(SlotOf("foo{}{bar}"), SlotOf("bar"));
}

TEST(RedisClusterTest, RedirectionsAreUnderstood) {
  const Endpoint asked{"10.0.0.1", 7000, ""};
  const auto moved = ParseRedirection("MOVED 3999 127.0.0.1:6381", asked);
  ASSERT_TRUE(moved);
  EXPECT_FALSE(moved->ask);
  EXPECT_EQ(moved->slot, 3999);
  EXPECT_EQ(moved->endpoint.ToString(), "127.0.0.1:6381");
  EXPECT_TRUE(ParseRedirection("ASK 1 h:2", asked)->ask);
  EXPECT_EQ(ParseRedirection("MOVED 1 :6381", asked)->endpoint.ToString(), "10.0.0.1:6381");
  EXPECT_EQ(ParseRedirection("MOVED 1 fe80::1:6381", asked)->endpoint.ToString(), "[fe80::1]:6381");
  for (const char* text : {"MOVED", "MOVED x h:1", "MOVED 16384 h:1", "MOVED 1 h", "MOVED 1 h:0",
                           "MOVED 1 h:99999", "ERR MOVED 1 h:1"}) {
    EXPECT_FALSE(ParseRedirection(text, asked)) << text;
  }
}

TEST(RedisClusterTest, ErrorsBecomeStatuses) {
  EXPECT_EQ(StatusOfError("OOM command not allowed").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(StatusOfError("WRONGTYPE Operation").code(), StatusCode::kCorruption);
  EXPECT_TRUE(StatusOfError("LOADING Redis is loading").retryable());
  EXPECT_FALSE(StatusOfError("NOPERM no permissions").retryable());
  EXPECT_THAT(StatusOfError("NOPERM no permissions").message(), HasSubstr("NOPERM"));
}

}  // namespace
}  // namespace embercache::redis
