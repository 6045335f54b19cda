#pragma once

#include <string>
#include <vector>

#include "embercache/status.h"

namespace embercache {

// The locations of external data that an ONNX file names, as written in it (relative to its
// folder), each once, sorted. Reads the structure, not the weights. Invalid where the file is no
// ONNX model.
Result<std::vector<std::string>> ExternalDataLocations(const std::string& path);

}  // namespace embercache
