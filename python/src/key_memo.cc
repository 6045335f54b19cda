#include "python/src/key_memo.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

#include "python/src/support.h"

namespace embercache::python {
namespace {

constexpr size_t kSlots = 65536;  // 7 MiB

}  // namespace

KeyMemo::KeyMemo(const Digest256& namespace_digest)
    : namespace_digest_(namespace_digest),
      slots_(static_cast<Slot*>(std::calloc(kSlots, sizeof(Slot))), &std::free) {
  if (!slots_) throw std::bad_alloc();
}

EmbeddingKey KeyMemo::KeyOf(nb::handle hash) {
  const std::string_view text = TextOf(hash);
  if (text.empty() || text.size() > kTextBytes) {
    return EmbeddingKey::FromCallerHash(namespace_digest_, text);
  }
  const Py_hash_t python_hash = PyObject_Hash(hash.ptr());
  Slot& slot = slots_[static_cast<size_t>(python_hash) % kSlots];
  const bool found = slot.python_hash == python_hash && slot.text_bytes == text.size() &&
                     std::memcmp(slot.text.data(), text.data(), text.size()) == 0;
  if (!found) {
    slot.python_hash = python_hash;
    slot.text_bytes = static_cast<uint8_t>(text.size());
    std::memcpy(slot.text.data(), text.data(), text.size());
    slot.key = EmbeddingKey::FromCallerHash(namespace_digest_, text);
  }
  return slot.key;
}

}  // namespace embercache::python
