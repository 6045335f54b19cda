#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "embercache/embedding.h"

namespace embercache::simulation {

// One item that everybody asks for, and what its embedding is: any node's encoder gives the same.
// Each row says whose it is and where it belongs, so that whoever sees bytes can check them.
struct Media {
  uint32_t id = 0;
  EmbeddingKey key;
  uint64_t tokens = 0;
  std::string metadata;

  uint64_t payload_bytes() const;
};

// Of all of them: F32 rows of 1 KiB.
const EmbeddingSpec& SimSpec();

// `count` items, most of a few rows, some of several pages, some with much metadata.
std::vector<Media> MakeMedia(uint32_t count);
// The one whose key has this text; null when there is none.
const Media* FindMedia(std::span<const Media> all, std::string_view key_text);

// Writes rows [first, end) where they belong in `buffers`.
void FillRows(const Media& media, uint64_t first, uint64_t end,
              std::span<const MutableBuffer> buffers);
// What is wrong with the payload; empty when nothing is.
std::string CheckRows(const Media& media, std::span<const ConstBuffer> buffers);
// The same for a pin: info, metadata and payload.
std::string CheckPin(const Media& media, const Pin& pin);
// The same for a stored object, its trailer included.
std::string CheckObject(const Media& media, std::span<const std::byte> object);

}  // namespace embercache::simulation
