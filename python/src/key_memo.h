#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "embercache/key.h"

namespace embercache::python {

// The keys of callers' hashes that were asked for lately: a key is a SHA-256 digest, which costs
// more than a look-up in the cache does. A table without chains, so that finding a key reads one
// place of memory; a newer hash takes the place of an older one. The GIL is held for all calls.
class KeyMemo {
 public:
  explicit KeyMemo(const Digest256& namespace_digest);

  // Raises what Python raises for a str that is not valid Unicode. REQUIRES: a str.
  EmbeddingKey KeyOf(nanobind::handle hash);

 private:
  static constexpr size_t kTextBytes = 71;
  struct Slot {
    Py_hash_t python_hash = 0;
    uint8_t text_bytes = 0;  // 0: nothing here
    std::array<char, kTextBytes> text;
    EmbeddingKey key;
  };

  const Digest256 namespace_digest_;
  // Zero pages until they are used.
  const std::unique_ptr<Slot[], void (*)(void*)> slots_;
};

}  // namespace embercache::python
