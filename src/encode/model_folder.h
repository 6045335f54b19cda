#pragma once

#include <functional>
#include <string>
#include <vector>

#include "embercache/digest.h"
#include "embercache/encoder.h"
#include "embercache/status.h"

namespace embercache {

// What a model's folder holds.
struct ModelFolder {
  std::string model_path;
  // Data files that the model names, in a fixed order: as named, and where they lie.
  struct DataFile {
    std::string location;
    std::string path;
  };
  std::vector<DataFile> data_files;
  std::string preprocessor_config;  // the text
  std::string output;               // from embercache.toml; empty: not said
};

// Errors: NotFound, Invalid; each names the file.
Result<ModelFolder> OpenModelFolder(const std::string& dir);

// As EncoderInfo::weights_digest.
Result<Digest256> DigestWeights(const ModelFolder& folder,
                                const std::function<void(const LoadProgress&)>& progress);

}  // namespace embercache
