#include "src/server/safetensors.h"

#include <cstring>
#include <nlohmann/json.hpp>

namespace embercache {

std::string SafetensorsHead(const std::map<std::string, std::string>& metadata,
                            std::span<const TensorEntry> tensors) {
  using Json = nlohmann::ordered_json;
  Json header;
  header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const TensorEntry& tensor : tensors) {
    header[tensor.name] = {{"dtype", DTypeName(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.bytes}}};
    offset += tensor.bytes;
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  std::string head(sizeof size, '\0');
  std::memcpy(head.data(), &size, sizeof size);
  return head + text;
}

}  // namespace embercache
