// Invariants:
// - The picture is never whole in memory here. Rows stream through both passes of the resize; the
//   first pass keeps as many rows as the second needs for one output row.
// - Between the passes are 8 bits, so their order shows. It is Pillow's, for the upright picture;
// in
//   a stored picture that has to be transposed the horizontal pass goes down the columns.
// - Mirroring and cropping are done in the weights, transposition when elements are written.

#include "src/encode/preprocess.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace embercache {
namespace {

// A prepared image is at most this large: 200 MB as float32.
constexpr uint64_t kMaxPreparedPixels = uint64_t{1} << 24;

// Round to nearest, ties to even, as IEEE 754 says.
uint16_t HalfBits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);   // not a number
  if (magnitude >= 0x47800000) return static_cast<uint16_t>(sign | 0x7c00);  // 2^16 and more
  if (magnitude < 0x38800000) {
    // Below the smallest normal half: let the addition of 0.5 round at the right bit.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  }
  const uint32_t odd = magnitude >> 13 & 1;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000 + 0xfff + odd) >> 13));
}

// The arithmetic of transformers: the product in double, the rest in single precision.
float ElementOf(int byte, const PreprocessSettings& settings, size_t channel) {
  float value = static_cast<float>(byte);
  if (settings.rescale_factor) value = static_cast<float>(byte * *settings.rescale_factor);
  if (settings.normalise) {
    value = (value - static_cast<float>(settings.normalise->mean[channel])) /
            static_cast<float>(settings.normalise->std[channel]);
  }
  return value;
}

// Where one axis of the upright output comes from.
struct AxisPlan {
  uint32_t in;       // positions of the upright picture
  uint32_t resized;  // after the resize
  uint32_t out;      // after the crop
  uint32_t begin;    // first resized position that is kept
  uint32_t end;
  uint32_t pad;  // output positions before it that the picture does not reach
};

AxisPlan PlanAxis(uint32_t in, uint32_t resized, uint32_t out) {
  // Floor of half the difference, so that an odd remainder goes to the far side of what is cut off
  // and to the near side of what is padded.
  const int64_t difference = int64_t{resized} - out;
  const int64_t offset = (difference - (difference & 1)) / 2;
  AxisPlan plan{.in = in, .resized = resized, .out = out, .begin = 0, .end = resized, .pad = 0};
  if (offset < 0) {
    plan.pad = static_cast<uint32_t>(-offset);
  } else {
    plan.begin = static_cast<uint32_t>(offset);
    plan.end = plan.begin + out;
  }
  return plan;
}

// Writes finished rows of the stored picture's resize into the tensor, upright.
class TensorWriter {
 public:
  TensorWriter(PreparedItem& item, DType dtype, const AxisPlan& x, const AxisPlan& y, Turn turn,
               const std::array<std::array<uint32_t, 256>, 3>& elements, bool flip_channels)
      : data_(item.data.get()),
        dtype_(dtype),
        x_(x),
        y_(y),
        turn_(turn),
        elements_(elements),
        flip_channels_(flip_channels) {}

  // Makes everything the padding's zero pixels.
  void FillPadding() {
    const size_t plane = size_t{x_.out} * y_.out;
    for (size_t channel = 0; channel < 3; ++channel) {
      for (size_t i = 0; i < plane; ++i) Put(channel, i, 0);
    }
  }

  // Row `row` of the resized and cropped picture, along the stored axes.
  void Write(uint32_t row, PlanarRow pixels) {
    const uint32_t rows = turn_.transpose ? x_.end - x_.begin : y_.end - y_.begin;
    const uint32_t line = turn_.mirror_y ? rows - 1 - row : row;
    const size_t width = x_.out;
    size_t at = turn_.transpose ? y_.pad * width + x_.pad + line : (y_.pad + line) * width + x_.pad;
    ptrdiff_t step = turn_.transpose ? static_cast<ptrdiff_t>(width) : 1;
    if (turn_.mirror_x) {
      at += (size_t{pixels.width()} - 1) * static_cast<size_t>(step);
      step = -step;
    }
    if (dtype_ == DType::kF32) {
      WriteAs<uint32_t>(pixels, at, step);
    } else {
      WriteAs<uint16_t>(pixels, at, step);
    }
  }

 private:
  size_t Plane(size_t channel) const {
    return (flip_channels_ ? 2 - channel : channel) * size_t{x_.out} * y_.out;
  }

  void Put(size_t channel, size_t at, uint8_t byte) {
    const uint32_t element = elements_[channel][byte];
    if (dtype_ == DType::kF32) {
      reinterpret_cast<uint32_t*>(data_)[Plane(channel) + at] = element;
    } else {
      reinterpret_cast<uint16_t*>(data_)[Plane(channel) + at] = static_cast<uint16_t>(element);
    }
  }

  template <typename Element>
  void WriteAs(PlanarRow pixels, size_t at, ptrdiff_t step) {
    for (size_t channel = 0; channel < 3; ++channel) {
      Element* to = reinterpret_cast<Element*>(data_) + Plane(channel) + at;
      const std::array<uint32_t, 256>& elements = elements_[channel];
      const uint8_t* plane = pixels.plane(channel);
      for (size_t i = 0; i < pixels.width(); ++i, to += step) {
        *to = static_cast<Element>(elements[plane[i]]);
      }
    }
  }

  std::byte* data_;
  DType dtype_;
  const AxisPlan& x_;
  const AxisPlan& y_;
  Turn turn_;
  const std::array<std::array<uint32_t, 256>, 3>& elements_;
  bool flip_channels_;
};

// The last rows of a stream, as many as the longest window down the columns.
class RowRing {
 public:
  RowRing(size_t rows, uint32_t width, uint32_t slack)
      : width_(width), slack_(slack), bytes_(rows * PlanarRow::Bytes(width, slack)) {
    rows_.reserve(rows);
  }
  PlanarRow Row(size_t row) {
    const size_t bytes = PlanarRow::Bytes(width_, slack_);
    return {bytes_.data() + row % (bytes_.size() / bytes) * bytes, width_, slack_};
  }
  std::span<const uint8_t* const> Rows(const AxisWeights::Window& window) {
    rows_.clear();
    for (uint32_t i = 0; i < window.count; ++i) {
      rows_.push_back(Row(window.first + i).bytes().data());
    }
    return rows_;
  }

 private:
  uint32_t width_;
  uint32_t slack_;
  std::vector<uint8_t> bytes_;
  std::vector<const uint8_t*> rows_;
};

// Both passes. `along` and `down` are the resizes along the stored rows and down the columns.
class Passes {
 public:
  Passes(uint32_t width, const AxisWeights& along, const AxisWeights& down, bool down_first)
      : along_(along),
        down_(down),
        down_first_(down_first),
        slack_(8 * along.groups()),
        stored_bytes_(PlanarRow::Bytes(width, slack_)),
        finished_bytes_(PlanarRow::Bytes(along.size(), slack_)),
        stored_(stored_bytes_.data(), width, slack_),
        finished_(finished_bytes_.data(), along.size(), slack_),
        ring_(down.longest(), down_first ? width : along.size(), slack_) {}

  // Takes row `y` of the picture, and gives the writer every row that is now complete.
  // REQUIRES: called for each row in order.
  void Take(uint32_t y, std::span<const uint8_t> rgba, TensorWriter& writer) {
    if (done_ == down_.size() || y < down_[done_].first) return;
    if (down_first_) {
      kernel_.split(rgba, ring_.Row(y));
    } else {
      kernel_.split(rgba, stored_);
      kernel_.row(along_, stored_, ring_.Row(y));
    }
    for (; done_ < down_.size() && down_[done_].first + down_[done_].count <= y + 1; ++done_) {
      if (down_first_) {
        kernel_.columns(down_, done_, ring_.Rows(down_[done_]), stored_.bytes());
        kernel_.row(along_, stored_, finished_);
      } else {
        kernel_.columns(down_, done_, ring_.Rows(down_[done_]), finished_.bytes());
      }
      writer.Write(done_, finished_);
    }
  }

 private:
  const ResampleKernel& kernel_ = FastestKernel();
  const AxisWeights& along_;
  const AxisWeights& down_;
  const bool down_first_;
  const uint32_t slack_;
  std::vector<uint8_t> stored_bytes_;
  std::vector<uint8_t> finished_bytes_;
  PlanarRow stored_;
  PlanarRow finished_;
  RowRing ring_;
  uint32_t done_ = 0;  // windows down the columns that are complete
};

// transformers: the long side is cut to an integer, by way of a double.
ImageSize ShortestEdge(ImageSize image, uint32_t edge) {
  const uint32_t shorter = std::min(image.width, image.height);
  const uint32_t longer = std::max(image.width, image.height);
  const auto long_edge = static_cast<uint32_t>(static_cast<double>(uint64_t{edge} * longer) /
                                               static_cast<double>(shorter));
  return image.width <= image.height ? ImageSize{edge, long_edge} : ImageSize{long_edge, edge};
}

ImageSize ResizedSize(const PreprocessSettings& settings, ImageSize image) {
  if (!settings.resize) return image;
  if (settings.resize->size) return *settings.resize->size;
  return ShortestEdge(image, *settings.resize->shortest_edge);
}

// Pillow 13: down the columns first where the height shrinks by more than twice what the width
// does. Up to 12 the rows came first; that gives bytes that differ by one.
bool VerticalFirst(const AxisPlan& x, const AxisPlan& y) {
  const int64_t shorter = int64_t{y.in} - y.resized;
  const int64_t narrower = int64_t{x.in} - x.resized;
  return shorter > 0 && shorter > 2 * narrower;
}

}  // namespace

std::string PreprocessSettings::Canonical() const {
  std::string text = fmt::format("preprocess_version={}\n", kPreprocessVersion);
  if (resize) {
    text += resize->size ? fmt::format("resize={}x{}", resize->size->width, resize->size->height)
                         : fmt::format("resize=shortest_edge {}", *resize->shortest_edge);
    text += fmt::format(" filter {}\n", static_cast<int>(resize->filter));
  }
  if (centre_crop) text += fmt::format("crop={}x{}\n", centre_crop->width, centre_crop->height);
  if (rescale_factor) text += fmt::format("rescale={}\n", *rescale_factor);
  if (normalise) {
    text += fmt::format("mean={}\nstd={}\n", fmt::join(normalise->mean, " "),
                        fmt::join(normalise->std, " "));
  }
  if (flip_channel_order) text += "channels=bgr\n";
  return text;
}

std::optional<ImageSize> PreprocessSettings::FixedSize() const {
  if (centre_crop) return centre_crop;
  if (resize) return resize->size;
  return std::nullopt;
}

Preprocessor::Preprocessor(PreprocessSettings settings, DType dtype)
    : settings_(std::move(settings)), dtype_(dtype) {
  for (size_t channel = 0; channel < 3; ++channel) {
    for (int byte = 0; byte < 256; ++byte) {
      const float element = ElementOf(byte, settings_, channel);
      elements_[channel][static_cast<size_t>(byte)] =
          dtype_ == DType::kF32 ? std::bit_cast<uint32_t>(element) : HalfBits(element);
    }
  }
}

Result<ImageSize> Preprocessor::OutputSize(ImageSize image) const {
  const ImageSize resized = ResizedSize(settings_, image);
  const ImageSize out = settings_.centre_crop.value_or(resized);
  if (uint64_t{out.width} * out.height > kMaxPreparedPixels) {
    return Status(
        StatusCode::kResourceExhausted,
        fmt::format("the model's preprocessing makes {}x{} pixels of this {}x{} image; "
                    "the limit is {} pixels",
                    out.width, out.height, image.width, image.height, kMaxPreparedPixels));
  }
  return out;
}

Status Preprocessor::Run(ImageSource& source, PreparedItem& item) const {
  const Turn turn = TurnOf(source.orientation());
  ImageSize image{source.width(), source.height()};
  if (turn.transpose) std::swap(image.width, image.height);
  EMBERCACHE_ASSIGN_OR_RETURN(const ImageSize out, OutputSize(image));
  const ImageSize resized = ResizedSize(settings_, image);
  const AxisPlan x = PlanAxis(image.width, resized.width, out.width);
  const AxisPlan y = PlanAxis(image.height, resized.height, out.height);

  item.shape = {3, int64_t{out.height}, int64_t{out.width}};
  item.dtype = dtype_;
  item.size_bytes = size_t{3} * out.width * out.height * DTypeSize(dtype_);
  item.data = std::make_unique_for_overwrite<std::byte[]>(item.size_bytes);

  const Filter filter = settings_.resize ? settings_.resize->filter : Filter::kNearest;
  const AxisPlan& along_plan = turn.transpose ? y : x;
  const AxisPlan& down_plan = turn.transpose ? x : y;
  const AxisWeights along(filter, along_plan.in, along_plan.resized, along_plan.begin,
                          along_plan.end, turn.mirror_x);
  const AxisWeights down(filter, down_plan.in, down_plan.resized, down_plan.begin, down_plan.end,
                         turn.mirror_y);
  TensorWriter writer(item, dtype_, x, y, turn, elements_, settings_.flip_channel_order);
  if (x.pad > 0 || y.pad > 0) writer.FillPadding();
  const bool down_first = VerticalFirst(x, y) != turn.transpose;
  Passes passes(source.width(), along, down, down_first);
  std::vector<uint8_t> row(size_t{4} * source.width());
  for (uint32_t i = 0; i < source.height(); ++i) {
    // Rows that no window needs are read all the same: the picture may be broken further down.
    EMBERCACHE_RETURN_IF_ERROR(source.ReadRow(row));
    passes.Take(i, row, writer);
  }
  return Status::Ok();
}

}  // namespace embercache
