#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "embercache/dtype.h"
#include "embercache/encoder.h"
#include "embercache/status.h"
#include "src/encode/image_source.h"
#include "src/encode/resample.h"

namespace embercache {

// Changes whenever the same media and settings give other tensors than before, so that older
// embeddings are no longer found. The golden test holds it.
inline constexpr int kPreprocessVersion = 1;

// Longest side that a model's settings may ask for.
inline constexpr uint32_t kMaxPreparedSide = 4096;

struct ImageSize {
  uint32_t width = 0;
  uint32_t height = 0;
  bool operator==(const ImageSize&) const = default;
};

// What preprocessor_config.json says, with the defaults of its class filled in.
struct PreprocessSettings {
  struct Resize {
    // Exactly one of the two.
    std::optional<uint32_t> shortest_edge;
    std::optional<ImageSize> size;
    Filter filter = Filter::kBicubic;
  };
  struct Normalisation {
    std::array<double, 3> mean{};
    std::array<double, 3> std{};
  };

  std::optional<Resize> resize;
  std::optional<ImageSize> centre_crop;
  std::optional<double> rescale_factor;
  std::optional<Normalisation> normalise;
  bool flip_channel_order = false;  // to BGR, as the last step

  // One line a setting; equal settings have equal texts. Starts with kPreprocessVersion.
  std::string Canonical() const;
  // The size of every prepared image, where it does not depend on the image.
  std::optional<ImageSize> FixedSize() const;
};

// Reads the text of a preprocessor_config.json. Errors (Invalid) name the entry, its value, and
// what is supported; they do not name the file.
Result<PreprocessSettings> ParsePreprocessorConfig(std::string_view json);

// Decodes, turns upright, resizes, crops, rescales and normalises: a tensor [3, height, width] of
// `dtype` (kF32 or kF16), equal bit for bit to what the slow image processors of Hugging Face
// transformers make of the same pixels. Memory besides the tensor: a few rows of the picture.
class Preprocessor {
 public:
  // REQUIRES: dtype is kF32 or kF16.
  Preprocessor(PreprocessSettings settings, DType dtype);

  const PreprocessSettings& settings() const { return settings_; }
  DType dtype() const { return dtype_; }

  // The size of the tensor made of an upright picture of `image` pixels. ResourceExhausted where
  // that is over a limit.
  Result<ImageSize> OutputSize(ImageSize image) const;

  // Errors: as ImageSource::ReadRow and OutputSize. Thread-safe.
  Status Run(ImageSource& source, PreparedItem& item) const;

 private:
  PreprocessSettings settings_;
  DType dtype_;
  // The element for each byte, by colour channel (red, green, blue), as bits.
  std::array<std::array<uint32_t, 256>, 3> elements_;
};

}  // namespace embercache
