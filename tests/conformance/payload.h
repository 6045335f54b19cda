#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "embercache/store.h"

namespace embercache {

using Bytes = std::vector<std::byte>;

// `size` bytes that only this text gives, so that any reader can tell whose bytes it got.
Bytes PayloadOf(std::string_view text, size_t size);

// Memory for a get, with guards between and around its buffers.
class GuardedBuffers {
 public:
  // One buffer a size.
  explicit GuardedBuffers(const std::vector<size_t>& sizes);

  std::span<const MutableBuffer> buffers() const { return buffers_; }
  // What the buffers hold, one after the other.
  Bytes Content() const;
  // Whether no byte outside the buffers was written.
  bool GuardsHold() const;

 private:
  static constexpr size_t kGuardBytes = 64;
  Bytes memory_;
  std::vector<MutableBuffer> buffers_;
};

// Buffers over `bytes`, cut into the sizes; the rest is the last one.
std::vector<ConstBuffer> Cut(std::span<const std::byte> bytes, const std::vector<size_t>& sizes);

// The calls for one item.
PutResult PutOne(EmbeddingStore& store, std::string_view key, std::span<const std::byte> bytes,
                 PutMode mode = PutMode::kIfAbsent, const CallContext& context = {});
// Gets the object into one buffer of `size`; `*bytes` is what is in it then.
GetResult GetOne(EmbeddingStore& store, std::string_view key, size_t size, Bytes* bytes,
                 const CallContext& context = {});
StatResult StatOne(EmbeddingStore& store, std::string_view key);
RemoveResult RemoveOne(EmbeddingStore& store, std::string_view key,
                       std::optional<ObjectVersion> version = std::nullopt);

}  // namespace embercache
