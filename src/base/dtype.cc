#include "embercache/dtype.h"

namespace embercache {

size_t DTypeSize(DType dtype) {
  switch (dtype) {
    case DType::kU8:
    case DType::kI8:
      return 1;
    case DType::kI16:
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kI32:
    case DType::kF32:
      return 4;
    case DType::kI64:
    case DType::kF64:
      return 8;
  }
  return 0;
}

std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kU8:
      return "U8";
    case DType::kI8:
      return "I8";
    case DType::kI16:
      return "I16";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kF32:
      return "F32";
    case DType::kF64:
      return "F64";
  }
  return "unknown";
}

std::optional<DType> DTypeFromNumber(uint8_t number) {
  const auto dtype = static_cast<DType>(number);
  if (DTypeSize(dtype) == 0) return std::nullopt;
  return dtype;
}

std::string_view ModalityName(Modality modality) {
  switch (modality) {
    case Modality::kImage:
      return "image";
    case Modality::kVideo:
      return "video";
    case Modality::kAudio:
      return "audio";
  }
  return "unknown";
}

std::optional<Modality> ModalityFromNumber(uint8_t number) {
  if (number < 1 || number > 3) return std::nullopt;
  return static_cast<Modality>(number);
}

}  // namespace embercache
