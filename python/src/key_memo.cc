#include "python/src/key_memo.h"

#include <utility>

namespace embercache::python {
namespace {

constexpr size_t kKeysAGeneration = 65536;
constexpr size_t kMaxHashBytes = 128;

}  // namespace

EmbeddingKey KeyMemo::KeyOf(std::string_view hash) {
  if (const auto it = recent_.find(hash); it != recent_.end()) return it->second;
  const auto it = older_.find(hash);
  const EmbeddingKey key =
      it != older_.end() ? it->second : EmbeddingKey::FromCallerHash(namespace_digest_, hash);
  if (hash.size() <= kMaxHashBytes) Add(hash, key);
  return key;
}

void KeyMemo::Add(std::string_view hash, const EmbeddingKey& key) {
  if (recent_.size() >= kKeysAGeneration) older_ = std::exchange(recent_, {});
  recent_.emplace(hash, key);
}

}  // namespace embercache::python
