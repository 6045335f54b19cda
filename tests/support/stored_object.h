#pragma once

// Whole objects in a store, as bytes, for tests that look at them or damage them.

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "embercache/store.h"
#include "src/cache/envelope.h"
#include "tests/support/test_embeddings.h"

namespace embercache {

using Bytes = std::vector<std::byte>;

// What is under the key; nullopt when there is nothing.
inline std::optional<Bytes> ReadObject(EmbeddingStore& store, const EmbeddingKey& key) {
  const std::string text = key.Text();
  const std::string_view view = text;
  const StatResult stat = store.BatchStat(std::span(&view, 1), {}).front();
  if (!stat.status.ok() || !stat.found) return std::nullopt;
  Bytes bytes(stat.bytes);
  const MutableBuffer buffer = bytes;
  const GetResult got = store.BatchGet(std::span(&view, 1), std::span(&buffer, 1), {}).front();
  if (got.outcome != GetOutcome::kHit) return std::nullopt;
  return bytes;
}

inline void WriteObject(EmbeddingStore& store, const EmbeddingKey& key, const Bytes& bytes) {
  const std::string text = key.Text();
  const ConstBuffer buffer = bytes;
  const PutItem item{.key = text, .buffers = std::span(&buffer, 1), .mode = PutMode::kReplace};
  const PutResult put = store.BatchPutFromMultiBuffers(std::span(&item, 1), {}).front();
  ASSERT_EQ(put.outcome, PutOutcome::kStored) << put.status.ToString();
}

// The object of the embedding `tag`, as a node would publish it under `info`.
inline Bytes MakeObject(uint64_t tag, const EmbeddingInfo& info) {
  Trailer trailer;
  trailer.info = info;
  trailer.payload_bytes = info.payload_bytes();
  Bytes bytes(ObjectBytes(trailer.payload_bytes, info.metadata.size()));
  const MutableBuffer payload = MutableBuffer(bytes).first(trailer.payload_bytes);
  FillWith(tag, std::span(&payload, 1));
  const ConstBuffer written = payload;
  trailer.checksum = ChecksumOf(std::span(&written, 1));
  EncodeTrailer(trailer,
                MutableBuffer(bytes).last(TrailerBlocks(info.metadata.size()) * kBlockBytes));
  return bytes;
}

inline EmbeddingInfo TestInfo(uint64_t tag, uint64_t tokens, std::string metadata = "") {
  return {
      .key = TestKey(tag), .spec = TestSpec(), .tokens = tokens, .metadata = std::move(metadata)};
}

}  // namespace embercache
