#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "src/cache/stored_object.h"

namespace embercache {

// "good", "absent", "corrupt", "foreign", "failed".
std::string_view ObjectStateName(ObjectState state);

// What a stored object is, for people and programs: id, state, object_bytes; when good its
// shape, dtype, bytes, modality, namespace, created and metadata, else the reason.
nlohmann::ordered_json DescribeObject(const std::string& id, const StoredObject& object);

}  // namespace embercache
