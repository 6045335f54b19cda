#include "tests/conformance/payload.h"

#include <algorithm>
#include <cstring>
#include <functional>

namespace embercache {

Bytes PayloadOf(std::string_view text, size_t size) {
  Bytes bytes(size);
  uint64_t state = std::hash<std::string_view>()(text) ^ size;
  for (size_t i = 0; i < size; i += sizeof state) {
    // splitmix64, https://prng.di.unimi.it/splitmix64.c
    uint64_t word = state += 0x9e3779b97f4a7c15U;
    word = (word ^ (word >> 30U)) * 0xbf58476d1ce4e5b9U;
    word = (word ^ (word >> 27U)) * 0x94d049bb133111ebU;
    word ^= word >> 31U;
    std::memcpy(bytes.data() + i, &word, std::min(sizeof word, size - i));
  }
  return bytes;
}

GuardedBuffers::GuardedBuffers(const std::vector<size_t>& sizes) {
  size_t total = kGuardBytes;
  for (const size_t size : sizes) total += size + kGuardBytes;
  memory_.assign(total, std::byte{0xA5});
  size_t offset = kGuardBytes;
  for (const size_t size : sizes) {
    buffers_.push_back(MutableBuffer(memory_).subspan(offset, size));
    offset += size + kGuardBytes;
  }
}

Bytes GuardedBuffers::Content() const {
  Bytes content;
  for (const MutableBuffer& buffer : buffers_) {
    content.insert(content.end(), buffer.begin(), buffer.end());
  }
  return content;
}

bool GuardedBuffers::GuardsHold() const {
  const std::byte* at = memory_.data();
  const auto intact = [&](const std::byte* end) {
    return std::all_of(at, end, [](std::byte b) { return b == std::byte{0xA5}; });
  };
  for (const MutableBuffer& buffer : buffers_) {
    if (!intact(buffer.data())) return false;
    at = buffer.data() + buffer.size();
  }
  return intact(memory_.data() + memory_.size());
}

std::vector<ConstBuffer> Cut(std::span<const std::byte> bytes, const std::vector<size_t>& sizes) {
  std::vector<ConstBuffer> parts;
  for (const size_t size : sizes) {
    parts.push_back(bytes.first(std::min(size, bytes.size())));
    bytes = bytes.subspan(parts.back().size());
  }
  parts.push_back(bytes);
  return parts;
}

PutResult PutOne(EmbeddingStore& store, std::string_view key, std::span<const std::byte> bytes,
                 PutMode mode, const CallContext& context) {
  const PutItem item{key, {&bytes, 1}, mode};
  return store.BatchPutFromMultiBuffers({&item, 1}, context).at(0);
}

GetResult GetOne(EmbeddingStore& store, std::string_view key, size_t size, Bytes* bytes,
                 const CallContext& context) {
  bytes->assign(size, std::byte{0xA5});
  const MutableBuffer buffer(*bytes);
  const GetItem item{key, {&buffer, 1}};
  return store.BatchGetIntoMultiBuffers({&item, 1}, context).at(0);
}

StatResult StatOne(EmbeddingStore& store, std::string_view key) {
  return store.BatchStat({&key, 1}, {}).at(0);
}

RemoveResult RemoveOne(EmbeddingStore& store, std::string_view key,
                       std::optional<ObjectVersion> version) {
  const RemoveItem item{key, version};
  return store.BatchRemove({&item, 1}, {}).at(0);
}

}  // namespace embercache
