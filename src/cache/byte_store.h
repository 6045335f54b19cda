#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "embercache/buffer.h"
#include "embercache/digest.h"
#include "embercache/status.h"
#include "embercache/store.h"

namespace embercache {

struct ByteGetItem {
  // The caller's name for the embedding.
  std::string hash;
  // Filled one after the other; their sum has to be the payload's size.
  std::vector<MutableBuffer> buffers;
};

struct BytePutItem {
  std::string hash;
  std::vector<ConstBuffer> buffers;
};

// A store for callers that know embeddings only as bytes under a hash, such as a controller that is
// not ours: keys of a namespace, envelopes without a shape, and verification of all that is read,
// so that they share a store with EmberCache's own nodes. Over a store in raw format it adds and
// checks nothing: payloads are under GetKey(hash). One result an item. Blocks; thread-safe.
class ByteStore {
 public:
  ByteStore(std::shared_ptr<EmbeddingStore> store, const Digest256& namespace_digest);

  // kHit: verified, in the buffers. Else their content is undefined. An object that is bad on two
  // reads is removed where the store can tell that it is still the same one, and is a miss.
  std::vector<GetOutcome> Get(std::span<const ByteGetItem> items, const CallContext& context);
  std::vector<PutResult> Put(std::span<const BytePutItem> items, const CallContext& context);
  // Failures count as absent.
  std::vector<bool> Exist(std::span<const std::string> hashes, const CallContext& context);

  EmbeddingStore& store() { return *store_; }
  // "emb_<64 hex>", or the store's GetKey(hash) in raw format.
  std::string KeyText(const std::string& hash) const;

 private:
  struct Read;

  std::vector<GetOutcome> GetRaw(std::span<const ByteGetItem> items, const CallContext& context);
  std::vector<PutResult> PutRaw(std::span<const BytePutItem> items, const CallContext& context);
  void ReadBatch(std::vector<Read>& reads, const CallContext& context);
  Status Verify(const Read& read) const;

  const std::shared_ptr<EmbeddingStore> store_;
  const bool raw_;
  const Digest256 namespace_digest_;
};

}  // namespace embercache
