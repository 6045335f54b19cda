#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace embercache {

// Pillow's filters, with its numbers.
enum class Filter : uint8_t {
  kNearest = 0,
  kLanczos = 1,
  kBilinear = 2,
  kBicubic = 3,
  kHamming = 5
};

// Weights and sums are fixed point.
inline constexpr int kFractionBits = 22;

// The byte of a window's sum of bytes times weights.
constexpr uint8_t RoundedByte(int32_t sum) {
  const int32_t rounded = (sum + (1 << (kFractionBits - 1))) >> kFractionBits;
  return static_cast<uint8_t>(std::clamp(rounded, 0, 255));
}

// How one axis of a picture is resized: each output position is a weighted sum of a window of input
// positions. The arithmetic of Pillow's 8-bit resize, bit for bit.
class AxisWeights {
 public:
  struct Window {
    uint32_t first;          // input position
    uint32_t count;          // at least 1
    const int32_t* weights;  // `count` of them
    // The same in two parts, each filled up with zeros to 8 * groups(), for kernels that multiply
    // 16-bit numbers: a weight is high * 2^shift() + low.
    const int16_t* high;
    const int16_t* low;
  };

  // Resizes `in` positions to `out`, of which only [begin, end) are wanted; `reversed` counts the
  // input from its other end. Windows ascend with the input: with `reversed`, window i is that of
  // output end - 1 - i.
  // REQUIRES: in, out >= 1, begin < end <= out.
  AxisWeights(Filter filter, uint32_t in, uint32_t out, uint32_t begin, uint32_t end,
              bool reversed);
  AxisWeights(AxisWeights&&) = default;

  uint32_t size() const { return static_cast<uint32_t>(spans_.size()); }
  // Where each window begins.
  const uint32_t* firsts() const { return firsts_.data(); }
  // Eights of weights that the longest window has.
  uint32_t groups() const { return (longest_ + 7) / 8; }
  int shift() const { return shift_; }
  // For each window, what the low parts take from its sum over bytes at most, and what they add.
  const int32_t* most_below() const { return most_below_.data(); }
  const int32_t* most_above() const { return most_above_.data(); }
  Window operator[](uint32_t i) const {
    return {firsts_[i], spans_[i].count, weights_.data() + spans_[i].offset,
            high_.data() + size_t{8} * groups() * i, low_.data() + size_t{8} * groups() * i};
  }
  // The most input positions a window has.
  uint32_t longest() const { return longest_; }

 private:
  struct Span {
    uint32_t count;
    size_t offset;
  };

  void AddNearest(uint32_t in, uint32_t out, uint32_t begin, uint32_t end);
  void AddFiltered(Filter filter, uint32_t in, uint32_t out, uint32_t begin, uint32_t end);
  void Append(uint32_t first, std::span<const double> weights);
  void Reverse(uint32_t in);
  void SplitWeights();

  std::vector<uint32_t> firsts_;
  std::vector<Span> spans_;
  std::vector<int32_t> weights_;
  std::vector<int16_t> high_;
  std::vector<int16_t> low_;
  std::vector<int32_t> most_below_;
  std::vector<int32_t> most_above_;
  uint32_t longest_ = 0;
  int shift_ = 0;
};

// A row whose colours lie apart: three planes of bytes, each followed by `slack` bytes that may be
// read and overwritten, whatever they are.
class PlanarRow {
 public:
  static size_t Bytes(uint32_t width, uint32_t slack) { return size_t{3} * (width + slack); }

  // `bytes` is what Bytes(width, slack) asks for, and outlives this.
  PlanarRow(uint8_t* bytes, uint32_t width, uint32_t slack)
      : bytes_(bytes), width_(width), slack_(slack) {}

  uint32_t width() const { return width_; }
  uint8_t* plane(size_t colour) const { return bytes_ + colour * (width_ + slack_); }
  // All three planes and what is between them.
  std::span<uint8_t> bytes() const { return {bytes_, Bytes(width_, slack_)}; }

 private:
  uint8_t* bytes_;
  uint32_t width_;
  uint32_t slack_;
};

// What the resize does with bytes. Kernels differ in speed alone.
struct ResampleKernel {
  // Takes a row of 4-byte pixels, the last byte of which means nothing, apart.
  void (*split)(std::span<const uint8_t> rgba, PlanarRow out);
  // A row resized along it: out.width() is weights.size().
  // REQUIRES: a slack of 8 * weights.groups() in both.
  void (*row)(const AxisWeights& weights, PlanarRow in, PlanarRow out);
  // Row `i` from the rows of its window, byte by byte: rows[k] is the k-th of them.
  // REQUIRES: rows.size() == weights[i].count, each row as long as `out`.
  void (*columns)(const AxisWeights& weights, uint32_t i, std::span<const uint8_t* const> rows,
                  std::span<uint8_t> out);
};

// For any processor.
const ResampleKernel& PortableKernel();
// For processors with AVX2; nullptr where this one has none.
const ResampleKernel* Avx2Kernel();
// The fastest that this processor can run.
const ResampleKernel& FastestKernel();

}  // namespace embercache
