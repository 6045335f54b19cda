#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "embercache/digest.h"
#include "embercache/dtype.h"
#include "embercache/media.h"
#include "embercache/status.h"

namespace embercache {

// What makes two encoders' embeddings differ, and their shape.
struct EncoderInfo {
  std::string model_id;
  // SHA-256 of the model file where it holds all weights; else a SHA-256 over it and every external
  // data file that it names.
  Digest256 weights_digest;
  // Canonical text of all that decides the bytes besides the weights: the version of our
  // preprocessing, its settings, and the model output that is taken.
  std::string preprocess_fingerprint;
  DType dtype = DType::kF32;
  uint32_t hidden = 0;
  Modality modality = Modality::kImage;
  // Tokens of every item, where that does not depend on the item.
  std::optional<uint32_t> fixed_tokens;
  // The most items of one Encode call.
  uint32_t max_batch = 1;
};

// A media item ready for the encoder. Immutable once made; readable from any thread.
struct PreparedItem {
  // The tensor's shape without the batch dimension: channels, height, width. Items of equal shape
  // may go into one Encode call.
  std::vector<int64_t> shape;
  DType dtype = DType::kF32;
  // The tensor, row-major.
  std::unique_ptr<std::byte[]> data;
  size_t size_bytes = 0;
  std::optional<uint32_t> expected_tokens;
  // A JSON object: {"format":"jpeg","height":1440,"width":2560}, as decoded and turned upright,
  // before any resize.
  std::string metadata_json;
};

// One embedding. `bytes` is row-major [tokens, hidden], and lives as long as `owner` (or a copy).
struct EncodedItem {
  uint32_t tokens = 0;
  uint32_t hidden = 0;
  DType dtype = DType::kF32;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

// Turns media into embeddings. Thread-safe: every method may be called from several threads at
// once.
class Encoder {
 public:
  virtual ~Encoder() = default;

  virtual const EncoderInfo& info() const = 0;

  // Decodes and preprocesses one item; what it is, its content decides. Nothing is kept of `media`.
  // Errors: Invalid (not decodable: broken, truncated, unknown), ResourceExhausted (over a limit;
  // the message names value and limit), Unimplemented (a known kind of media that is not served).
  virtual Result<std::unique_ptr<PreparedItem>> Prepare(std::span<const std::byte> media,
                                                        const MediaOptions& options) const = 0;

  // One forward pass over `items`, which have equal shapes; fills `out` in their order.
  // The bytes of an item do not depend on the others in the batch.
  // REQUIRES: out.size() == items.size(), 1 <= items.size() <= info().max_batch.
  // Errors: Invalid (shapes differ), Internal (the runtime failed; its message).
  virtual Status Encode(std::span<const PreparedItem* const> items,
                        std::span<EncodedItem> out) const = 0;
};

// What loading is busy with, for a line on a terminal. `done` of `total` is in bytes where the
// stage reads files, else 0 of 0.
struct LoadProgress {
  std::string_view stage;
  uint64_t done = 0;
  uint64_t total = 0;
};

struct EncoderOptions {
  // Empty: the name of the model's folder.
  std::string model_id = {};
  // The ONNX Runtime: a shared library, or a folder with lib/. Empty: $ONNXRUNTIME_LIBRARY (a
  // library), $ONNXRUNTIME_ROOT (a folder), the folder known when this was built, the system's.
  std::string onnxruntime = {};
  // Images of more pixels are refused before anything is allocated for them.
  uint64_t max_pixels = 178'000'000;
  // Threads inside one forward pass. Callers in parallel beat threads inside a pass on a CPU.
  int intra_op_threads = 1;
};

// Loads a model folder: model.onnx (else the only *.onnx in it or in onnx/, or what embercache.toml
// names) and preprocessor_config.json as Hugging Face writes it. Runs the model once.
// `progress`, when given, is called on this thread.
// Errors: NotFound (a file that has to be there), Invalid (something in the folder is not supported
// or wrong; the message names file and entry), Unavailable (no usable ONNX Runtime).
Result<std::unique_ptr<Encoder>> LoadOnnxEncoder(
    const std::string& dir, const EncoderOptions& options,
    const std::function<void(const LoadProgress&)>& progress = nullptr);

}  // namespace embercache
