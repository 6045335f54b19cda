#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "embercache/digest.h"
#include "embercache/dtype.h"

namespace embercache {

// What makes two embeddings of the same media differ. One namespace a model.
struct NamespaceFields {
  std::string model_id;
  // Over the weights, external data files included.
  Digest256 weights_digest;
  // Canonical text of all that preprocessing depends on, its version included.
  std::string preprocess_fingerprint;
  DType dtype = DType::kF32;
  // 1 where tensor parallelism does not change the bytes.
  uint32_t tensor_parallel_size = 1;
  // Keeps tenants apart; empty for one tenant.
  std::string tenant_salt;
  // A new epoch makes all older entries unreachable.
  uint64_t epoch = 0;
};

// SHA-256 over a domain tag and the length-prefixed fields; docs/formats.md has it byte by byte.
Digest256 NamespaceDigest(const NamespaceFields& fields);

// The identity of an embedding: 256 bits, also the name under which a store has it.
struct EmbeddingKey {
  Digest256 digest;

  // Of media given as bytes: `media` is the SHA-256 of the raw bytes as they were uploaded,
  // `options` the SHA-256 of the canonical text of the options that change the result.
  static EmbeddingKey FromMedia(const Digest256& namespace_digest, Modality modality,
                                const Digest256& media, const Digest256& options);
  // Of a caller's own name for the item. Never equal to a key made from media.
  static EmbeddingKey FromCallerHash(const Digest256& namespace_digest, std::string_view hash);

  // "emb_<64 hex>", what stores use.
  std::string Text() const { return "emb_" + digest.ToHex(); }
  auto operator<=>(const EmbeddingKey&) const = default;
};

// For hash tables: the key's first bytes are uniform already.
struct EmbeddingKeyHash {
  size_t operator()(const EmbeddingKey& key) const {
    size_t value;
    std::memcpy(&value, key.digest.bytes.data(), sizeof value);
    return value;
  }
};

}  // namespace embercache
