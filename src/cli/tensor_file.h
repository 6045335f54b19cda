#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "embercache/buffer.h"
#include "embercache/dtype.h"
#include "embercache/status.h"

namespace embercache {

enum class TensorFormat : uint8_t { kSafetensors, kNpy };

// By the file's extension: .safetensors or .npy, else Invalid.
Result<TensorFormat> TensorFormatOf(std::string_view path);

// A row-major tensor to be written.
struct TensorView {
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape;
  std::span<const ConstBuffer> bytes;  // one after the other
  // Texts for the head of a safetensors file; .npy has no place for them.
  std::map<std::string, std::string> metadata;
};

// Writes a file that holds one tensor, named "embedding" in safetensors; the file is there whole or
// not at all. Invalid for a dtype that .npy does not have.
Status WriteTensorFile(const std::string& path, TensorFormat format, const TensorView& tensor);

}  // namespace embercache
