#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "embercache/dtype.h"

namespace embercache {

// One tensor of a safetensors file; the tensors' bytes follow the head in the same order.
struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape;
  uint64_t bytes = 0;
};

// What a safetensors file has before the tensors' bytes: 8 bytes of length and a JSON header, a
// multiple of 8 in all. https://github.com/huggingface/safetensors
std::string SafetensorsHead(const std::map<std::string, std::string>& metadata,
                            std::span<const TensorEntry> tensors);

}  // namespace embercache
