#include "src/cache/envelope.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

#include "src/memory/page_pool.h"

namespace embercache {
namespace {

Trailer Example(std::string metadata = R"({"grid":[1,2,3]})") {
  Trailer trailer;
  trailer.info.key = {Sha256Of("key")};
  trailer.info.spec = {.namespace_digest = Sha256Of("namespace"),
                       .modality = Modality::kImage,
                       .dtype = DType::kF32,
                       .hidden = 4};
  trailer.info.tokens = 3;
  trailer.info.metadata = std::move(metadata);
  trailer.payload_bytes = 48;
  const std::vector<std::byte> payload(48, std::byte{7});
  const ConstBuffer buffer = payload;
  trailer.checksum = ChecksumOf(std::span(&buffer, 1));
  trailer.created_ms = 1700000000000;
  return trailer;
}

std::vector<std::byte> Encode(const Trailer& trailer) {
  std::vector<std::byte> blocks(TrailerBlocks(trailer.info.metadata.size()) * kBlockBytes);
  EncodeTrailer(trailer, blocks);
  return blocks;
}

TEST(EnvelopeTest, WhatWasEncodedIsDecoded) {
  for (size_t metadata : {0U, 1U, 3072U, 3073U, 4096U, 4097U, 1U << 20}) {
    const Trailer trailer = Example(std::string(metadata, 'm'));
    const std::vector<std::byte> blocks = Encode(trailer);
    const TrailerHead head = PeekTrailer(ConstBuffer(blocks).last(kBlockBytes));
    ASSERT_EQ(head.verdict, TrailerVerdict::kGood);
    ASSERT_EQ(head.blocks * kBlockBytes, blocks.size());
    Trailer read;
    ASSERT_EQ(DecodeTrailer(blocks, &read), TrailerVerdict::kGood);
    EXPECT_EQ(read.info.key, trailer.info.key);
    EXPECT_EQ(read.info.spec, trailer.info.spec);
    EXPECT_EQ(read.info.tokens, 3U);
    EXPECT_EQ(read.info.metadata, trailer.info.metadata);
    EXPECT_EQ(read.payload_bytes, 48U);
    EXPECT_EQ(read.checksum, trailer.checksum);
    EXPECT_EQ(read.created_ms, trailer.created_ms);
    EXPECT_FALSE(read.shape_unknown);
  }
}

// tests/golden/trailer_v1.bin holds the example above as version 1 wrote it.
TEST(EnvelopeTest, TheGoldenTrailerIsWrittenAndReadByteForByte) {
  std::ifstream file(EMBERCACHE_GOLDEN_DIR "/trailer_v1.bin", std::ios::binary);
  ASSERT_TRUE(file) << "tests/golden/trailer_v1.bin is missing";
  const std::vector<char> golden(std::istreambuf_iterator<char>(file), {});
  const std::vector<std::byte> blocks = Encode(Example());
  ASSERT_EQ(golden.size(), blocks.size());
  EXPECT_EQ(std::memcmp(golden.data(), blocks.data(), blocks.size()), 0);
}

TEST(EnvelopeTest, AnyFlippedBitIsSeen) {
  const std::vector<std::byte> blocks = Encode(Example(std::string(5000, 'm')));
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::byte> damaged = blocks;
    // The head densely, the rest at random.
    const size_t at = i < 1400 ? blocks.size() - kBlockBytes + static_cast<size_t>(i) / 8
                               : random() % blocks.size();
    damaged[at] ^= static_cast<std::byte>(1 << (i % 8));
    const TrailerHead head = PeekTrailer(ConstBuffer(damaged).last(kBlockBytes));
    if (head.verdict != TrailerVerdict::kGood || head.blocks * kBlockBytes != damaged.size())
      continue;
    Trailer trailer;
    EXPECT_NE(DecodeTrailer(damaged, &trailer), TrailerVerdict::kGood) << "byte " << at;
  }
}

TEST(EnvelopeTest, ForeignMagicAndNewerVersionsAreIncompatibleNotCorrupt) {
  std::vector<std::byte> blocks = Encode(Example());
  blocks[8] = std::byte{2};
  EXPECT_EQ(PeekTrailer(blocks).verdict, TrailerVerdict::kIncompatible);
  blocks[8] = std::byte{1};
  blocks[0] = std::byte{'X'};
  EXPECT_EQ(PeekTrailer(blocks).verdict, TrailerVerdict::kIncompatible);
}

TEST(EnvelopeTest, ZerosAreCorruptSoThatTheyAreReplaced) {
  const std::vector<std::byte> blocks(kBlockBytes);
  EXPECT_EQ(PeekTrailer(blocks).verdict, TrailerVerdict::kCorrupt);
}

TEST(EnvelopeTest, OnlyTheObjectThatWasAskedForPasses) {
  const Trailer trailer = Example();
  const EmbeddingKey key = trailer.info.key;
  const EmbeddingSpec spec = trailer.info.spec;
  EXPECT_TRUE(CheckIdentity(trailer, key, spec, 3).ok());
  EXPECT_TRUE(CheckIdentity(trailer, key, spec, -1).ok());
  EXPECT_EQ(CheckIdentity(trailer, key, spec, 4).message(),
            "the object has 3 tokens, 4 were expected");
  EXPECT_FALSE(CheckIdentity(trailer, {Sha256Of("other")}, spec, 3).ok());
  const auto differs = [&](auto change) {
    EmbeddingSpec other = spec;
    change(other);
    return !CheckIdentity(trailer, key, other, 3).ok();
  };
  EXPECT_TRUE(differs([](EmbeddingSpec& s) { s.namespace_digest = Sha256Of("other"); }));
  EXPECT_TRUE(differs([](EmbeddingSpec& s) { s.dtype = DType::kI32; }));
  EXPECT_TRUE(differs([](EmbeddingSpec& s) { s.hidden = 5; }));
  EXPECT_TRUE(differs([](EmbeddingSpec& s) { s.modality = Modality::kAudio; }));
  Trailer overflowing = trailer;
  overflowing.info.tokens = (uint64_t{1} << 60) + 3;  // × 16 bytes wraps to 48
  EXPECT_FALSE(CheckIdentity(overflowing, key, spec, -1).ok());
}

TEST(EnvelopeTest, AnUnknownShapePassesOnlyWithTheExactTokenCount) {
  Trailer trailer = Example();
  trailer.shape_unknown = true;
  Trailer read;
  ASSERT_EQ(DecodeTrailer(Encode(trailer), &read), TrailerVerdict::kGood);
  EXPECT_TRUE(read.shape_unknown);
  const EmbeddingSpec spec = trailer.info.spec;
  EXPECT_TRUE(CheckIdentity(read, trailer.info.key, spec, 3).ok());
  EXPECT_FALSE(CheckIdentity(read, trailer.info.key, spec, 2).ok());
  EXPECT_FALSE(CheckIdentity(read, trailer.info.key, spec, -1).ok());
}

TEST(EnvelopeTest, ChecksumsDoNotDependOnHowTheBytesAreSplit) {
  std::vector<std::byte> data(100000);
  std::mt19937 random(2);
  for (std::byte& b : data) b = static_cast<std::byte>(random());
  const ConstBuffer whole = data;
  const std::vector<ConstBuffer> parts = {whole.first(1), whole.subspan(1, 65536),
                                          whole.subspan(65537)};
  EXPECT_EQ(ChecksumOf(parts), ChecksumOf(std::span(&whole, 1)));
}

TEST(EnvelopeTest, ARunningChecksumIsThatOfTheFirstBytes) {
  std::vector<std::byte> data(300'000);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 31);
  const ConstBuffer whole = data;
  const std::vector<ConstBuffer> parts = {
      whole.first(1), {}, whole.subspan(1, 65536), whole.subspan(65537)};
  RunningChecksum checksum;
  for (const uint64_t bytes : {1UL, 1UL, 65537UL, 70000UL, 300000UL, 5UL, 0UL, 300000UL}) {
    checksum.ExtendTo(parts, bytes);
    EXPECT_EQ(checksum.bytes(), bytes);
    const ConstBuffer first = whole.first(bytes);
    EXPECT_EQ(checksum.Finish(), ChecksumOf(std::span(&first, 1))) << bytes;
  }
}

TEST(EnvelopeTest, WhatWasHashedTooEarlyIsHashedAgain) {
  const Trailer trailer = Example();
  std::vector<std::byte> content(kBlockBytes);
  std::fill_n(content.begin(), 48, std::byte{7});
  const ConstBuffer buffer = content;
  const std::vector<std::byte> stale(16, std::byte{1});
  const ConstBuffer early = stale;
  const auto check = [&] {
    RunningChecksum checksum;
    checksum.ExtendTo({&early, 1}, 16);
    return CheckContent(trailer, {&buffer, 1}, 2 * kBlockBytes, &checksum);
  };
  EXPECT_TRUE(check().ok());
  content[20] = std::byte{8};
  EXPECT_EQ(check().code(), StatusCode::kCorruption);
}

}  // namespace
}  // namespace embercache
