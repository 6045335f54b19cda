#pragma once

#include <onnxruntime_cxx_api.h>

#include <string>

#include "embercache/status.h"

namespace embercache {

// The process's ONNX Runtime, loaded by the first call that succeeds, from `option` or where
// EncoderOptions::onnxruntime says; later calls give the same one, whatever they ask for.
// Loaded and not linked, so that one build runs with every release since 1.17. Never unloaded.
// Errors: Unavailable, which says what was tried. Thread-safe.
Result<Ort::Env*> OnnxRuntime(const std::string& option);

}  // namespace embercache
