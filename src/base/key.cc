#include "embercache/key.h"

// Every field goes into the hash behind its length as 8 little-endian bytes, so no two lists of
// fields give one input. docs/formats.md holds the layout, tests/golden/keys.txt the results.

namespace embercache {
namespace {

void AddLittleEndian(Sha256& sha, uint64_t value) {
  std::array<std::byte, 8> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i));
  sha.Update(bytes);
}

void AddField(Sha256& sha, std::span<const std::byte> field) {
  AddLittleEndian(sha, field.size());
  sha.Update(field);
}

void AddField(Sha256& sha, std::string_view field) {
  AddField(sha, std::as_bytes(std::span(field)));
}

void AddField(Sha256& sha, uint64_t field) {
  AddLittleEndian(sha, sizeof field);
  AddLittleEndian(sha, field);
}

}  // namespace

Digest256 NamespaceDigest(const NamespaceFields& fields) {
  Sha256 sha;
  AddField(sha, "embercache.namespace.v1");
  AddField(sha, fields.model_id);
  AddField(sha, fields.weights_digest.bytes);
  AddField(sha, fields.preprocess_fingerprint);
  AddField(sha, DTypeName(fields.dtype));
  AddField(sha, uint64_t{fields.tensor_parallel_size});
  AddField(sha, fields.tenant_salt);
  AddField(sha, fields.epoch);
  return sha.Finish();
}

EmbeddingKey EmbeddingKey::FromMedia(const Digest256& namespace_digest, Modality modality,
                                     const Digest256& media, const Digest256& options) {
  Sha256 sha;
  AddField(sha, "embercache.key.v1.media");
  AddField(sha, namespace_digest.bytes);
  AddField(sha, ModalityName(modality));
  AddField(sha, media.bytes);
  AddField(sha, options.bytes);
  return {sha.Finish()};
}

EmbeddingKey EmbeddingKey::FromCallerHash(const Digest256& namespace_digest,
                                          std::string_view hash) {
  Sha256 sha;
  AddField(sha, "embercache.key.v1.caller");
  AddField(sha, namespace_digest.bytes);
  AddField(sha, hash);
  return {sha.Finish()};
}

}  // namespace embercache
