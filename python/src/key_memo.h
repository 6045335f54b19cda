#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "embercache/key.h"

namespace embercache::python {

// The keys of callers' hashes that were asked for lately: a key is a SHA-256 digest, which costs
// more than a look-up in the cache does. Bounded in entries, and only short hashes are kept. The
// GIL is held for all calls.
class KeyMemo {
 public:
  explicit KeyMemo(const Digest256& namespace_digest) : namespace_digest_(namespace_digest) {}

  EmbeddingKey KeyOf(std::string_view hash);

 private:
  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  using Keys = std::unordered_map<std::string, EmbeddingKey, TextHash, std::equal_to<>>;

  void Add(std::string_view hash, const EmbeddingKey& key);

  const Digest256 namespace_digest_;
  // A full generation becomes the older one, and what it has forgotten is computed again.
  Keys recent_, older_;
};

}  // namespace embercache::python
