#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "embercache/status.h"
#include "src/server/encode_request.h"

namespace embercache {

// The folder whose files `path` items may name. Immutable.
class MediaRoot {
 public:
  // No folder: every path is refused.
  MediaRoot() = default;
  // NotFound when `dir` is no folder.
  static Result<MediaRoot> Open(const std::string& dir);

  // The bytes of a regular file in the folder; `path` is relative to it, or absolute. Links are
  // followed as long as they stay inside. Invalid when it is none, in words that do not tell what
  // there is outside; ResourceExhausted (not retryable) beyond `max_bytes`.
  Result<std::vector<std::byte>> Read(const std::string& path, uint64_t max_bytes) const;

 private:
  std::string real_dir_;
};

// The raw bytes of an item. They lie in `storage` or in the request's body.
// Decodes base64 where it lies, so this can be done once.
Result<std::span<const std::byte>> TakeMediaBytes(RequestedItem& item, const MediaRoot& root,
                                                  uint64_t max_bytes,
                                                  std::vector<std::byte>* storage);

}  // namespace embercache
