// Invariants:
// - Sums fit 32 bits: 255 times the weights' absolute sum, which for these filters is below 2.
// - Equal to Pillow's resize bit for bit: double arithmetic in the same order for the weights, one
//   rounding to fixed point, integer sums. Kept by the golden test; a change here that alters a
//   pixel needs a new kPreprocessVersion.

#include "src/encode/resample.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numbers>

namespace embercache {
namespace {

constexpr int32_t kOne = 1 << kFractionBits;

double Sinc(double x) {
  if (x == 0) return 1;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double Evaluate(Filter filter, double x) {
  const double distance = std::abs(x);
  switch (filter) {
    case Filter::kBilinear:
      return distance < 1 ? 1 - distance : 0;
    case Filter::kHamming: {
      if (distance == 0) return 1;
      if (distance >= 1) return 0;
      const double angle = distance * std::numbers::pi;
      // The constants are single precision, as Pillow has them.
      return std::sin(angle) / angle * (0.54f + 0.46f * std::cos(angle));
    }
    case Filter::kBicubic: {
      constexpr double kA = -0.5;
      if (distance < 1) return ((kA + 2) * distance - (kA + 3)) * distance * distance + 1;
      if (distance < 2) return (((distance - 5) * distance + 8) * distance - 4) * kA;
      return 0;
    }
    case Filter::kLanczos:
      return -3 <= x && x < 3 ? Sinc(x) * Sinc(x / 3) : 0;
    case Filter::kNearest:
      break;
  }
  return 0;
}

double Support(Filter filter) {
  switch (filter) {
    case Filter::kLanczos:
      return 3;
    case Filter::kBicubic:
      return 2;
    default:
      return 1;
  }
}

int32_t FixedPoint(double weight) {
  return static_cast<int32_t>((weight < 0 ? -0.5 : 0.5) + weight * kOne);
}

}  // namespace

AxisWeights::AxisWeights(Filter filter, uint32_t in, uint32_t out, uint32_t begin, uint32_t end,
                         bool reversed) {
  assert(in >= 1 && begin < end && end <= out);
  firsts_.reserve(end - begin);
  spans_.reserve(end - begin);
  if (in == out) {
    constexpr double kWhole = 1;
    for (uint32_t i = begin; i < end; ++i) Append(i, {&kWhole, 1});
  } else if (filter == Filter::kNearest) {
    AddNearest(in, out, begin, end);
  } else {
    AddFiltered(filter, in, out, begin, end);
  }
  if (reversed) Reverse(in);
  SplitWeights();
}

void AxisWeights::AddNearest(uint32_t in, uint32_t out, uint32_t begin, uint32_t end) {
  constexpr double kWhole = 1;
  const double scale = static_cast<double>(in) / out;
  // Summed up step by step, since rounding then falls as in Pillow.
  double position = scale * 0.5;
  for (uint32_t i = 0; i < end; ++i, position += scale) {
    if (i >= begin) Append(std::min(static_cast<uint32_t>(position), in - 1), {&kWhole, 1});
  }
}

void AxisWeights::AddFiltered(Filter filter, uint32_t in, uint32_t out, uint32_t begin,
                              uint32_t end) {
  const double scale = static_cast<double>(in) / out;
  const double stretch = std::max(scale, 1.0);
  const double per_stretch = 1.0 / stretch;
  const double support = Support(filter) * stretch;
  std::vector<double> window;
  for (uint32_t i = begin; i < end; ++i) {
    const double centre = (i + 0.5) * scale;
    const int first = std::max(static_cast<int>(centre - support + 0.5), 0);
    const int last = std::min(static_cast<int>(centre + support + 0.5), static_cast<int>(in));
    window.clear();
    double sum = 0;
    for (int x = 0; x < last - first; ++x) {
      window.push_back(Evaluate(filter, (x + first - centre + 0.5) * per_stretch));
      sum += window.back();
    }
    if (sum != 0) {
      for (double& weight : window) weight /= sum;
    }
    Append(static_cast<uint32_t>(first), window);
  }
}

void AxisWeights::Append(uint32_t first, std::span<const double> weights) {
  firsts_.push_back(first);
  spans_.push_back({static_cast<uint32_t>(weights.size()), weights_.size()});
  for (const double weight : weights) weights_.push_back(FixedPoint(weight));
  longest_ = std::max(longest_, spans_.back().count);
}

void AxisWeights::Reverse(uint32_t in) {
  for (size_t i = 0; i < spans_.size(); ++i) {
    firsts_[i] = in - firsts_[i] - spans_[i].count;
    const auto begin = weights_.begin() + static_cast<ptrdiff_t>(spans_[i].offset);
    std::reverse(begin, begin + spans_[i].count);
  }
  std::reverse(firsts_.begin(), firsts_.end());
  std::reverse(spans_.begin(), spans_.end());
}

void AxisWeights::SplitWeights() {
  int32_t largest = 0;
  for (const int32_t weight : weights_) largest = std::max(largest, std::abs(weight));
  while ((largest >> shift_) >= std::numeric_limits<int16_t>::max()) ++shift_;
  const size_t padded = size_t{8} * groups();
  high_.resize(padded * spans_.size());
  low_.resize(high_.size());
  for (size_t i = 0; i < spans_.size(); ++i) {
    int32_t above = 0;
    int32_t below = 0;
    for (size_t x = 0; x < spans_[i].count; ++x) {
      const int32_t weight = weights_[spans_[i].offset + x];
      const int32_t high = (weight + (1 << shift_) / 2) >> shift_;
      const int32_t low = weight - (high << shift_);
      high_[i * padded + x] = static_cast<int16_t>(high);
      low_[i * padded + x] = static_cast<int16_t>(low);
      (low > 0 ? above : below) += std::abs(low);
    }
    most_below_.push_back(255 * below);
    most_above_.push_back(255 * above);
  }
}

namespace {

void Split(std::span<const uint8_t> rgba, PlanarRow out) {
  for (size_t colour = 0; colour < 3; ++colour) {
    uint8_t* plane = out.plane(colour);
    for (size_t x = 0; x < out.width(); ++x) plane[x] = rgba[4 * x + colour];
  }
}

void Row(const AxisWeights& weights, PlanarRow in, PlanarRow out) {
  for (uint32_t i = 0; i < weights.size(); ++i) {
    const AxisWeights::Window window = weights[i];
    for (size_t colour = 0; colour < 3; ++colour) {
      const uint8_t* bytes = in.plane(colour) + window.first;
      int32_t sum = 0;
      for (uint32_t x = 0; x < window.count; ++x) sum += bytes[x] * window.weights[x];
      out.plane(colour)[i] = RoundedByte(sum);
    }
  }
}

void Columns(const AxisWeights& weights, uint32_t row, std::span<const uint8_t* const> rows,
             std::span<uint8_t> out) {
  const AxisWeights::Window window = weights[row];
  // In blocks whose sums stay in the nearest cache.
  constexpr size_t kBlock = 1024;
  int32_t sums[kBlock];
  for (size_t begin = 0; begin < out.size(); begin += kBlock) {
    const size_t length = std::min(kBlock, out.size() - begin);
    std::fill_n(sums, length, 0);
    for (size_t k = 0; k < window.count; ++k) {
      const uint8_t* in = rows[k] + begin;
      const int32_t weight = window.weights[k];
      for (size_t i = 0; i < length; ++i) sums[i] += in[i] * weight;
    }
    for (size_t i = 0; i < length; ++i) out[begin + i] = RoundedByte(sums[i]);
  }
}

}  // namespace

const ResampleKernel& PortableKernel() {
  static constexpr ResampleKernel kKernel{&Split, &Row, &Columns};
  return kKernel;
}

const ResampleKernel& FastestKernel() {
  static const ResampleKernel& kernel = Avx2Kernel() != nullptr ? *Avx2Kernel() : PortableKernel();
  return kernel;
}

}  // namespace embercache
