#include "embercache/store.h"

#include <cassert>

namespace embercache {

std::vector<GetResult> EmbeddingStore::BatchGet(std::span<const std::string_view> keys,
                                                std::span<const MutableBuffer> buffers,
                                                const CallContext& context) {
  assert(keys.size() == buffers.size());
  std::vector<GetItem> items;
  items.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) items.push_back({keys[i], buffers.subspan(i, 1)});
  return BatchGetIntoMultiBuffers(items, context);
}

std::vector<PutResult> EmbeddingStore::BatchPut(std::span<const std::string_view> keys,
                                                std::span<const ConstBuffer> buffers,
                                                const CallContext& context) {
  assert(keys.size() == buffers.size());
  std::vector<PutItem> items;
  items.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    items.push_back({keys[i], buffers.subspan(i, 1), PutMode::kIfAbsent});
  }
  return BatchPutFromMultiBuffers(items, context);
}

Result<ListPage> EmbeddingStore::List(std::string_view /*cursor*/, size_t /*limit*/,
                                      const CallContext& /*context*/) {
  return Status::Unimplemented("backend '" + std::string(name()) + "' cannot list its objects");
}

Status EmbeddingStore::RegisterBuffer(const BufferRegion& /*region*/) {
  return Status::Ok();
}

Status EmbeddingStore::UnregisterBuffer(const BufferRegion& /*region*/) {
  return Status::Ok();
}

std::string EmbeddingStore::GetKey(std::string_view hash) const {
  return "emb_" + std::string(hash);
}

}  // namespace embercache
