#include "src/cache/finite.h"

#include <cstdint>
#include <cstring>

namespace embercache {
namespace {

// IEEE 754: NaN and Inf are the values whose exponent bits are all set. The loop has no branch, so
// that the compiler makes it a vector one.
template <typename Word>
bool AnyExponentFull(ConstBuffer buffer, Word exponent) {
  const std::byte* const data = buffer.data();
  const size_t count = buffer.size() / sizeof(Word);
  Word any = 0;
  for (size_t i = 0; i < count; ++i) {
    Word word;
    std::memcpy(&word, data + i * sizeof(Word), sizeof(Word));
    any = static_cast<Word>(any | static_cast<Word>((word & exponent) == exponent ? 1 : 0));
  }
  return any != 0;
}

bool HasNonFinite(ConstBuffer buffer, DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return AnyExponentFull<uint16_t>(buffer, 0x7c00);
    case DType::kBF16:
      return AnyExponentFull<uint16_t>(buffer, 0x7f80);
    case DType::kF32:
      return AnyExponentFull<uint32_t>(buffer, 0x7f800000U);
    case DType::kF64:
      return AnyExponentFull<uint64_t>(buffer, 0x7ff0000000000000ULL);
    default:
      return false;
  }
}

}  // namespace

bool HasNonFinite(std::span<const ConstBuffer> buffers, DType dtype) {
  for (ConstBuffer buffer : buffers) {
    if (HasNonFinite(buffer, dtype)) return true;
  }
  return false;
}

}  // namespace embercache
