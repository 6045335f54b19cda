#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>

#include "embercache/status.h"
#include "embercache/store.h"
#include "src/cache/envelope.h"

namespace embercache {

// Memory for one object at a time, on a page's boundary. Grows, and is used again. Move-only.
class ObjectMemory {
 public:
  // ResourceExhausted when there is not so much.
  Result<MutableBuffer> Take(uint64_t bytes);

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte[], Free> data_;
  uint64_t capacity_ = 0;
};

enum class ObjectState : uint8_t {
  kGood,
  kAbsent,
  kCorrupt,  // ours, and not what was written; `status` says why
  kForeign,  // of another format version or origin
  kFailed,   // not known; `status` says why
};

// One object of a store, whatever model it is of.
struct StoredObject {
  ObjectState state = ObjectState::kFailed;
  // OK when good or absent.
  Status status;
  // Of the whole object, unless it is absent or failed.
  uint64_t object_bytes = 0;
  std::optional<ObjectVersion> version;
  // When good. With trailer.shape_unknown, the payload's length is all that is known of its shape.
  Trailer trailer;
  // When good: lies in the memory that it was read into.
  ConstBuffer payload;
};

// Reads the object under a key or an id of List, and checks all that can be checked without its
// model: trailer, key (where the id tells it), length, padding, checksum.
StoredObject ReadStoredObject(EmbeddingStore& store, std::string_view id,
                              const CallContext& context, ObjectMemory* memory);

}  // namespace embercache
