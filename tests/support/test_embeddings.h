#pragma once

// Embeddings whose bytes say whose they are, so that any reader can check any bytes.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "embercache/embedding.h"
#include "src/memory/page_pool.h"

namespace embercache {

// Rows of 1024 bytes, four a page of 4096.
inline constexpr uint32_t kTestHidden = 256;
inline constexpr uint64_t kTestRowBytes = 1024;
inline constexpr uint64_t kRowsPerPage = kBlockBytes / kTestRowBytes;

inline EmbeddingSpec TestSpec(Modality modality = Modality::kImage) {
  return {.namespace_digest = Sha256Of("test namespace"),
          .modality = modality,
          .dtype = DType::kF32,
          .hidden = kTestHidden};
}

inline EmbeddingKey TestKey(uint64_t number) {
  return EmbeddingKey::FromCallerHash(TestSpec().namespace_digest, std::to_string(number));
}

// `pages` pages of 4096 bytes for test rows, not touched before their use.
inline std::shared_ptr<PagePool> TestPool(uint64_t pages, std::string name = "vision/1024") {
  return PagePool::Create({.name = std::move(name),
                           .row_bytes = kTestRowBytes,
                           .size_bytes = pages * 2 * kBlockBytes,
                           .prefault = false,
                           .page_bytes = kBlockBytes})
      .value();
}

// The rows of the embedding `tag`: finite floats that differ from those of any other tag, and from
// row to row.
class TestRows {
 public:
  explicit TestRows(uint64_t tag) : tag_(tag) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] = Word(i);
  }
  // Valid until the next call.
  ConstBuffer Row(uint64_t index) {
    words_[0] = Word(words_.size() + index);
    return std::as_bytes(std::span(words_));
  }

 private:
  uint64_t Word(uint64_t index) const {
    uint64_t x = tag_ * 0x9e3779b97f4a7c15ULL + index + 1;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return (x ^ (x >> 31)) & 0xbfffffffbfffffffULL;
  }

  const uint64_t tag_;
  std::array<uint64_t, kTestRowBytes / 8> words_;
};

inline void FillWith(uint64_t tag, std::span<const MutableBuffer> buffers) {
  TestRows rows(tag);
  uint64_t index = 0;
  for (const MutableBuffer& buffer : buffers) {
    for (size_t at = 0; at < buffer.size(); at += kTestRowBytes) {
      std::memcpy(buffer.data() + at, rows.Row(index++).data(),
                  std::min<size_t>(kTestRowBytes, buffer.size() - at));
    }
  }
}

// Whether the buffers hold exactly the first rows of the embedding `tag`.
inline bool Holds(uint64_t tag, std::span<const ConstBuffer> buffers) {
  TestRows rows(tag);
  uint64_t index = 0;
  for (const ConstBuffer& buffer : buffers) {
    for (size_t at = 0; at < buffer.size(); at += kTestRowBytes) {
      if (std::memcmp(buffer.data() + at, rows.Row(index++).data(),
                      std::min<size_t>(kTestRowBytes, buffer.size() - at)) != 0) {
        return false;
      }
    }
  }
  return true;
}

// Whether the pin is of the embedding `tag` with so many rows.
inline bool Holds(uint64_t tag, const Pin& pin, uint64_t tokens) {
  if (!pin) return false;
  uint64_t bytes = 0;
  for (const ConstBuffer& buffer : pin.buffers()) bytes += buffer.size();
  return pin.info().key == TestKey(tag) && pin.info().tokens == tokens &&
         bytes == tokens * kTestRowBytes && Holds(tag, pin.buffers());
}

}  // namespace embercache
