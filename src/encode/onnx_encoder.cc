// Invariants:
// - A session is shared by all callers; ONNX Runtime allows parallel runs of one session.
// - The runtime throws; nothing of it leaves this file.
// - What Encode gives away is the runtime's own output tensor, shared by the items of the batch.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <limits>
#include <new>
#include <utility>

#include "embercache/encoder.h"
#include "src/encode/folder_name.h"
#include "src/encode/image_source.h"
#include "src/encode/model_folder.h"
#include "src/encode/onnx_runtime.h"
#include "src/encode/preprocess.h"

namespace embercache {
namespace {

constexpr int64_t kDynamic = -1;
// A picture for the trial run, where neither settings nor graph fix a size: a multiple of the usual
// patch sizes 14, 16 and 32.
constexpr uint32_t kTrialSide = 224;

std::optional<DType> FromOnnx(ONNXTensorElementDataType type) {
  switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT:
      return DType::kF32;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16:
      return DType::kF16;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16:
      return DType::kBF16;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE:
      return DType::kF64;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8:
      return DType::kI8;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8:
      return DType::kU8;
    default:
      return std::nullopt;
  }
}

ONNXTensorElementDataType ToOnnx(DType dtype) {
  return dtype == DType::kF16 ? ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16
                              : ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
}

// One input or output of the graph.
struct Port {
  std::string name;
  std::optional<DType> dtype;  // nullopt: no tensor, or of a type that is not known here
  std::vector<int64_t> shape;  // kDynamic where not fixed
};

Port PortOf(std::string name, const Ort::TypeInfo& type) {
  Port port{.name = std::move(name), .dtype = std::nullopt, .shape = {}};
  if (type.GetONNXType() != ONNX_TYPE_TENSOR) return port;
  const auto tensor = type.GetTensorTypeAndShapeInfo();
  port.dtype = FromOnnx(tensor.GetElementType());
  port.shape = tensor.GetShape();
  return port;
}

std::vector<Port> Inputs(const Ort::Session& session) {
  Ort::AllocatorWithDefaultOptions allocator;
  std::vector<Port> ports;
  for (size_t i = 0; i < session.GetInputCount(); ++i) {
    ports.push_back(
        PortOf(session.GetInputNameAllocated(i, allocator).get(), session.GetInputTypeInfo(i)));
  }
  return ports;
}

std::vector<Port> Outputs(const Ort::Session& session) {
  Ort::AllocatorWithDefaultOptions allocator;
  std::vector<Port> ports;
  for (size_t i = 0; i < session.GetOutputCount(); ++i) {
    ports.push_back(
        PortOf(session.GetOutputNameAllocated(i, allocator).get(), session.GetOutputTypeInfo(i)));
  }
  return ports;
}

std::string Names(const std::vector<Port>& ports) {
  std::vector<std::string> names;
  for (const Port& port : ports) names.push_back(port.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

bool TakesImages(const Port& port) {
  return (port.dtype == DType::kF32 || port.dtype == DType::kF16) && port.shape.size() == 4 &&
         (port.shape[1] == 3 || port.shape[1] == kDynamic);
}

Result<Port> ImageInput(const std::vector<Port>& inputs) {
  std::vector<Port> images;
  std::vector<Port> others;
  for (const Port& port : inputs) (TakesImages(port) ? images : others).push_back(port);
  if (images.size() > 1) {
    return Status::Invalid(
        fmt::format("it has several image inputs: {}; one is understood", Names(images)));
  }
  if (images.empty()) {
    return Status::Invalid(fmt::format(
        "none of its inputs ({}) takes images: float32 or float16 [batch, 3, height, width]",
        Names(inputs)));
  }
  if (!others.empty()) {
    return Status::Invalid(
        fmt::format("it has inputs that are not understood: {}; besides the "
                    "images ({}) there may be none",
                    Names(others), images.front().name));
  }
  const int64_t batch = images.front().shape[0];
  if (batch != kDynamic && batch != 1) {
    return Status::Invalid(
        fmt::format("its input {} takes batches of exactly {}; 1 and any number "
                    "are understood",
                    images.front().name, batch));
  }
  return images.front();
}

Result<Port> EmbeddingOutput(const std::vector<Port>& outputs, std::string chosen) {
  if (chosen.empty() && outputs.size() > 1) chosen = "last_hidden_state";
  for (const Port& port : outputs) {
    if (!chosen.empty() && port.name != chosen) continue;
    if (port.dtype) return port;
    return Status::Invalid(
        fmt::format("its output {} has an element type that is not supported", port.name));
  }
  return Status::Invalid(
      fmt::format("it has no output {}; choose one of {} by the entry output in embercache.toml",
                  chosen, Names(outputs)));
}

Status RuntimeFailure(const std::exception& error) {
  std::string message = error.what();
  std::replace(message.begin(), message.end(), '\n', ' ');
  return Status::Internal(fmt::format("the model failed: {}", message));
}

class OnnxEncoder : public Encoder {
 public:
  OnnxEncoder(Ort::Session session, Port input, Port output, Preprocessor preprocessor,
              uint64_t max_pixels)
      : session_(std::move(session)),
        input_(std::move(input)),
        output_(std::move(output)),
        preprocessor_(std::move(preprocessor)),
        max_pixels_(max_pixels) {}

  const EncoderInfo& info() const override { return info_; }
  Result<std::unique_ptr<PreparedItem>> Prepare(std::span<const std::byte> media,
                                                const MediaOptions& options) const override;
  Status Encode(std::span<const PreparedItem* const> items,
                std::span<EncodedItem> out) const override;

  // Completes `info` by a run on an empty picture. Once, before anything else.
  Status Try(EncoderInfo info);

 private:
  Status CheckFits(ImageSize image) const;
  Result<Ort::Value> Run(std::span<const PreparedItem* const> items) const;

  EncoderInfo info_;
  mutable Ort::Session session_;
  const Port input_;
  const Port output_;
  const Preprocessor preprocessor_;
  const uint64_t max_pixels_;
};

// Of height and width: what the graph fixes has to be what preprocessing gives.
Status OnnxEncoder::CheckFits(ImageSize image) const {
  EMBERCACHE_ASSIGN_OR_RETURN(const ImageSize made, preprocessor_.OutputSize(image));
  const int64_t height = input_.shape[2];
  const int64_t width = input_.shape[3];
  if ((height == kDynamic || height == made.height) && (width == kDynamic || width == made.width)) {
    return Status::Ok();
  }
  const auto shown = [](int64_t side) {
    return side == kDynamic ? std::string("any") : fmt::format("{}", side);
  };
  return Status::Invalid(fmt::format("the model takes {}x{} pixels, and preprocessing gives {}x{}",
                                     shown(width), shown(height), made.width, made.height));
}

Result<std::unique_ptr<PreparedItem>> OnnxEncoder::Prepare(std::span<const std::byte> media,
                                                           const MediaOptions& options) const {
  try {
    EMBERCACHE_ASSIGN_OR_RETURN(const std::unique_ptr<ImageSource> source,
                                OpenImage(media, options, max_pixels_));
    ImageSize upright{source->width(), source->height()};
    if (TurnOf(source->orientation()).transpose) std::swap(upright.width, upright.height);
    EMBERCACHE_RETURN_IF_ERROR(CheckFits(upright));
    auto item = std::make_unique<PreparedItem>();
    EMBERCACHE_RETURN_IF_ERROR(preprocessor_.Run(*source, *item));
    item->expected_tokens = info_.fixed_tokens;
    item->metadata_json = fmt::format(R"({{"format":"{}","height":{},"width":{}}})",
                                      DetectMedia(media).name, upright.height, upright.width);
    return item;
  } catch (const std::bad_alloc&) {
    return Status::ResourceExhausted("there is not enough memory to decode the image");
  }
}

Result<Ort::Value> OnnxEncoder::Run(std::span<const PreparedItem* const> items) const {
  const PreparedItem& first = *items.front();
  std::vector<int64_t> shape = {static_cast<int64_t>(items.size())};
  shape.insert(shape.end(), first.shape.begin(), first.shape.end());
  // A lone item is read where it lies.
  std::byte* data = first.data.get();
  std::unique_ptr<std::byte[]> batch;
  if (items.size() > 1) {
    batch = std::make_unique_for_overwrite<std::byte[]>(items.size() * first.size_bytes);
    data = batch.get();
    for (size_t i = 0; i < items.size(); ++i) {
      std::memcpy(data + i * first.size_bytes, items[i]->data.get(), first.size_bytes);
    }
  }
  const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  const Ort::Value input =
      Ort::Value::CreateTensor(memory, data, items.size() * first.size_bytes, shape.data(),
                               shape.size(), ToOnnx(first.dtype));
  const char* input_name = input_.name.c_str();
  const char* output_name = output_.name.c_str();
  auto outputs = session_.Run(Ort::RunOptions{nullptr}, &input_name, &input, 1, &output_name, 1);
  return std::move(outputs.front());
}

// The shape of a batch of embeddings; a lone vector an item counts as one token.
Result<std::pair<uint32_t, uint32_t>> TokensAndHidden(const std::vector<int64_t>& shape,
                                                      size_t items) {
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  const bool known = (shape.size() == 2 || shape.size() == 3) &&
                     shape.front() == static_cast<int64_t>(items) &&
                     std::all_of(shape.begin(), shape.end(),
                                 [](int64_t side) { return side > 0 && side <= kMost; });
  if (!known) {
    return Status::Invalid(
        fmt::format("the model gives [{}] for {} items; understood are [items, tokens, hidden] and "
                    "[items, hidden]",
                    fmt::join(shape, ", "), items));
  }
  const int64_t tokens = shape.size() == 3 ? shape[1] : 1;
  return std::pair(static_cast<uint32_t>(tokens), static_cast<uint32_t>(shape.back()));
}

Status OnnxEncoder::Encode(std::span<const PreparedItem* const> items,
                           std::span<EncodedItem> out) const {
  for (const PreparedItem* item : items) {
    if (item->shape != items.front()->shape || item->dtype != items.front()->dtype) {
      return Status::Invalid("the items of a batch have to be of one shape");
    }
  }
  try {
    EMBERCACHE_ASSIGN_OR_RETURN(Ort::Value value, Run(items));
    const auto type = value.GetTensorTypeAndShapeInfo();
    EMBERCACHE_ASSIGN_OR_RETURN(const auto shape, TokensAndHidden(type.GetShape(), items.size()));
    const auto [tokens, hidden] = shape;
    if (info_.hidden != 0 && hidden != info_.hidden) {
      return Status::Internal(fmt::format("the model gives a width of {}, and gave {} at its start",
                                          hidden, info_.hidden));
    }
    const size_t bytes = size_t{tokens} * hidden * DTypeSize(*output_.dtype);
    const auto owner = std::make_shared<Ort::Value>(std::move(value));
    const auto* data = static_cast<const std::byte*>(owner->GetTensorRawData());
    for (size_t i = 0; i < items.size(); ++i) {
      out[i] = EncodedItem{.tokens = tokens,
                           .hidden = hidden,
                           .dtype = *output_.dtype,
                           .bytes = {data + i * bytes, bytes},
                           .owner = owner};
    }
    return Status::Ok();
  } catch (const std::exception& error) {
    return RuntimeFailure(error);
  }
}

Status OnnxEncoder::Try(EncoderInfo info) {
  info_ = std::move(info);
  info_.dtype = *output_.dtype;
  info_.max_batch = input_.shape[0] == kDynamic ? std::numeric_limits<uint32_t>::max() : 1;
  const auto side = [](int64_t fixed) {
    return fixed == kDynamic ? kTrialSide : static_cast<uint32_t>(fixed);
  };
  const std::optional<ImageSize> fixed = preprocessor_.settings().FixedSize();
  const ImageSize picture{side(input_.shape[3]), side(input_.shape[2])};
  EMBERCACHE_RETURN_IF_ERROR(CheckFits(picture));
  EMBERCACHE_ASSIGN_OR_RETURN(const ImageSize size, preprocessor_.OutputSize(picture));
  PreparedItem item;
  item.shape = {3, int64_t{size.height}, int64_t{size.width}};
  item.dtype = preprocessor_.dtype();
  item.size_bytes = size_t{3} * size.height * size.width * DTypeSize(item.dtype);
  item.data = std::make_unique<std::byte[]>(item.size_bytes);
  const PreparedItem* items[] = {&item};
  EncodedItem encoded;
  EMBERCACHE_RETURN_IF_ERROR(Encode(items, {&encoded, 1}));
  info_.hidden = encoded.hidden;
  if (fixed) info_.fixed_tokens = encoded.tokens;
  return Status::Ok();
}

Ort::Session OpenSession(Ort::Env& env, const std::string& path, int threads) {
  Ort::SessionOptions options;
  options.SetIntraOpNumThreads(threads);
  // Waiting threads leave the cores to other requests.
  if (threads > 1) options.AddConfigEntry("session.intra_op.allow_spinning", "0");
  return Ort::Session(env, path.c_str(), options);
}

// `status` with the file it is about before its message.
Status About(const std::string& file, const Status& status) {
  return Status(status.code(), fmt::format("{}: {}", file, status.message()));
}

}  // namespace

Result<std::unique_ptr<Encoder>> LoadOnnxEncoder(
    const std::string& dir, const EncoderOptions& options,
    const std::function<void(const LoadProgress&)>& progress) {
  EMBERCACHE_ASSIGN_OR_RETURN(const ModelFolder folder, OpenModelFolder(dir));
  Result<PreprocessSettings> settings = ParsePreprocessorConfig(folder.preprocessor_config);
  if (!settings.ok()) {
    return About((std::filesystem::path(dir) / "preprocessor_config.json").string(),
                 settings.status());
  }
  EMBERCACHE_ASSIGN_OR_RETURN(Ort::Env * env, OnnxRuntime(options.onnxruntime));
  EncoderInfo info;
  info.model_id = options.model_id.empty() ? FolderName(dir) : options.model_id;
  EMBERCACHE_ASSIGN_OR_RETURN(info.weights_digest, DigestWeights(folder, progress));
  if (progress) progress({.stage = "loading the model"});
  try {
    Ort::Session session = OpenSession(*env, folder.model_path, options.intra_op_threads);
    Result<Port> input = ImageInput(Inputs(session));
    if (!input.ok()) return About(folder.model_path, input.status());
    Result<Port> output = EmbeddingOutput(Outputs(session), folder.output);
    if (!output.ok()) return About(folder.model_path, output.status());
    info.preprocess_fingerprint = fmt::format("{}output={}\n", settings->Canonical(), output->name);
    Preprocessor preprocessor(*std::move(settings), *input->dtype);
    auto encoder =
        std::make_unique<OnnxEncoder>(std::move(session), *std::move(input), *std::move(output),
                                      std::move(preprocessor), options.max_pixels);
    if (progress) progress({.stage = "trying the model"});
    const Status tried = encoder->Try(std::move(info));
    if (!tried.ok()) return About(folder.model_path, tried);
    return std::unique_ptr<Encoder>(std::move(encoder));
  } catch (const std::exception& error) {
    return Status::Invalid(fmt::format("{}: {}", folder.model_path, error.what()));
  }
}

}  // namespace embercache
