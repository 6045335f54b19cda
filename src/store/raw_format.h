#pragma once

#include "embercache/store.h"

namespace embercache {

// Marks a store whose objects are payloads alone, under GetKey(hash): it shares a cluster with
// nodes that know no envelope. Only RawStore and ByteStore (src/cache) may stand above it.
class RawFormat {
 public:
  virtual ~RawFormat() = default;
};

inline bool IsRaw(const EmbeddingStore& store) {
  return dynamic_cast<const RawFormat*>(&store) != nullptr;
}

}  // namespace embercache
