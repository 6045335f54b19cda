#pragma once

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

// How one axis of a picture is resized: each output position is a weighted sum of a window of input
// positions. Weights are 22-bit fixed point; the arithmetic of Pillow's 8-bit resize, bit for bit.
class AxisWeights {
 public:
  struct Window {
    uint32_t first;          // input position
    uint32_t count;          // at least 1
    const int32_t* weights;  // `count` of them
  };

  // Resizes `in` positions to `out`, of which only [begin, end) are wanted; `reversed` counts the
  // input from its other end. Windows ascend with the input: with `reversed`, window i is that of
  // output end - 1 - i.
  // REQUIRES: in, out >= 1, begin < end <= out.
  AxisWeights(Filter filter, uint32_t in, uint32_t out, uint32_t begin, uint32_t end,
              bool reversed);
  AxisWeights(AxisWeights&&) = default;

  uint32_t size() const { return static_cast<uint32_t>(spans_.size()); }
  Window operator[](uint32_t i) const {
    return {spans_[i].first, spans_[i].count, weights_.data() + spans_[i].offset};
  }
  // The most input positions a window has.
  uint32_t longest() const { return longest_; }

 private:
  struct Span {
    uint32_t first;
    uint32_t count;
    size_t offset;
  };

  void AddNearest(uint32_t in, uint32_t out, uint32_t begin, uint32_t end);
  void AddFiltered(Filter filter, uint32_t in, uint32_t out, uint32_t begin, uint32_t end);
  void Append(uint32_t first, std::span<const double> weights);
  void Reverse(uint32_t in);

  std::vector<Span> spans_;
  std::vector<int32_t> weights_;
  uint32_t longest_ = 0;
};

// One row of 4-byte pixels resized along it: weights.size() pixels out.
void ResampleRow(const AxisWeights& weights, std::span<const uint8_t> in, std::span<uint8_t> out);

// One output row from the rows of its window: rows[i] is the i-th of them.
// REQUIRES: rows.size() == window.count, each row as long as `out`.
void ResampleColumns(const AxisWeights::Window& window, std::span<const uint8_t* const> rows,
                     std::span<uint8_t> out);

}  // namespace embercache
