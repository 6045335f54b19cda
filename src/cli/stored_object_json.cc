#include "src/cli/stored_object_json.h"

#include <fmt/chrono.h>

#include <ctime>

namespace embercache {
namespace {

using Json = nlohmann::ordered_json;

std::string TimeText(uint64_t ms_since_1970) {
  const auto seconds = static_cast<std::time_t>(ms_since_1970 / 1000);
  std::tm utc{};
  if (gmtime_r(&seconds, &utc) == nullptr) return std::to_string(ms_since_1970);
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", utc);
}

}  // namespace

std::string_view ObjectStateName(ObjectState state) {
  switch (state) {
    case ObjectState::kGood:
      return "good";
    case ObjectState::kAbsent:
      return "absent";
    case ObjectState::kCorrupt:
      return "corrupt";
    case ObjectState::kForeign:
      return "foreign";
    case ObjectState::kFailed:
      break;
  }
  return "failed";
}

Json DescribeObject(const std::string& id, const StoredObject& object) {
  Json json = {
      {"id", id}, {"state", ObjectStateName(object.state)}, {"object_bytes", object.object_bytes}};
  if (object.state != ObjectState::kGood) {
    json["reason"] = object.status.message();
    return json;
  }
  const Trailer& trailer = object.trailer;
  const EmbeddingInfo& info = trailer.info;
  json["key"] = info.key.digest.ToHex();
  if (!trailer.shape_unknown) {
    json["shape"] = {info.tokens, info.spec.hidden};
    json["dtype"] = DTypeName(info.spec.dtype);
    json["modality"] = ModalityName(info.spec.modality);
  }
  json["bytes"] = trailer.payload_bytes;
  json["namespace"] = info.spec.namespace_digest.ToHex();
  json["created"] = TimeText(trailer.created_ms);
  Json metadata = Json::parse(info.metadata, nullptr, false);
  json["metadata"] = metadata.is_object() ? std::move(metadata) : Json::object();
  return json;
}

}  // namespace embercache
