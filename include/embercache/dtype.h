#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace embercache {

// Element types of embeddings. The values are part of the stored format (docs/formats.md).
enum class DType : uint8_t {
  kU8 = 1,
  kI8 = 2,
  kI16 = 3,
  kI32 = 4,
  kI64 = 5,
  kF16 = 6,
  kBF16 = 7,
  kF32 = 8,
  kF64 = 9,
};

// Bytes an element.
size_t DTypeSize(DType dtype);
// The name that safetensors uses: "F32", "BF16", …
std::string_view DTypeName(DType dtype);
// nullopt where the number is none of the above.
std::optional<DType> DTypeFromNumber(uint8_t number);

// What kind of media an embedding was computed from. The values are part of the stored format.
enum class Modality : uint8_t { kImage = 1, kVideo = 2, kAudio = 3 };

// "image", "video", "audio".
std::string_view ModalityName(Modality modality);
std::optional<Modality> ModalityFromNumber(uint8_t number);

}  // namespace embercache
