#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "src/encode/resample.h"

namespace embercache {
namespace {

struct Resize {
  Filter filter;
  uint32_t in;
  uint32_t out;
};

std::vector<Resize> Resizes() {
  std::vector<Resize> resizes;
  for (const Filter filter : {Filter::kNearest, Filter::kLanczos, Filter::kBilinear,
                              Filter::kBicubic, Filter::kHamming}) {
    for (const auto& [in, out] : {std::pair{1u, 1u},
                                  {1u, 7u},
                                  {7u, 1u},
                                  {2560u, 448u},
                                  {30u, 224u},
                                  {448u, 448u},
                                  {449u, 448u},
                                  {5000u, 9u},
                                  {64u, 31u},
                                  {33u, 32u}}) {
      resizes.push_back({filter, in, out});
    }
  }
  return resizes;
}

// Rows of the kinds that a kernel could get wrong: noise, extremes, and a checkerboard, whose means
// lie just between two bytes.
std::vector<std::vector<uint8_t>> Rows(size_t bytes) {
  std::mt19937 random(7);
  std::vector<std::vector<uint8_t>> rows(4, std::vector<uint8_t>(bytes));
  for (size_t i = 0; i < bytes; ++i) {
    rows[0][i] = static_cast<uint8_t>(random());
    rows[1][i] = i / 4 % 2 == 0 ? 255 : 0;
    rows[2][i] = 255;
    rows[3][i] = random() % 16 == 0 ? 255 : 0;
  }
  return rows;
}

// The planes that a kernel makes of a row, one after the other.
std::vector<uint8_t> RowOf(const ResampleKernel& kernel, const AxisWeights& weights,
                           const std::vector<uint8_t>& rgba) {
  const auto width = static_cast<uint32_t>(rgba.size() / 4);
  const uint32_t slack = 8 * weights.groups();
  std::vector<uint8_t> split(PlanarRow::Bytes(width, slack));
  std::vector<uint8_t> resized(PlanarRow::Bytes(weights.size(), slack));
  const PlanarRow in(split.data(), width, slack);
  const PlanarRow out(resized.data(), weights.size(), slack);
  kernel.split(rgba, in);
  kernel.row(weights, in, out);
  std::vector<uint8_t> bytes;
  for (size_t c = 0; c < 3; ++c) {
    bytes.insert(bytes.end(), out.plane(c), out.plane(c) + weights.size());
  }
  return bytes;
}

TEST(ResampleTest, WeightsOfAWindowAddUpToOne) {
  for (const Resize& resize : Resizes()) {
    const AxisWeights weights(resize.filter, resize.in, resize.out, 0, resize.out, false);
    ASSERT_EQ(weights.size(), resize.out);
    for (uint32_t i = 0; i < weights.size(); ++i) {
      const AxisWeights::Window window = weights[i];
      ASSERT_LE(window.first + window.count, resize.in);
      const int sum = std::accumulate(window.weights, window.weights + window.count, 0);
      ASSERT_NEAR(sum, 1 << 22, window.count);
    }
  }
}

TEST(ResampleTest, TheTwoPartsOfAWeightMakeTheWeight) {
  for (const Resize& resize : Resizes()) {
    const AxisWeights weights(resize.filter, resize.in, resize.out, 0, resize.out, false);
    for (uint32_t i = 0; i < weights.size(); ++i) {
      const AxisWeights::Window window = weights[i];
      for (uint32_t x = 0; x < window.count; ++x) {
        ASSERT_EQ(window.weights[x], window.high[x] * (1 << weights.shift()) + window.low[x]);
      }
    }
  }
}

TEST(ResampleTest, APartOfAnAxisHasTheWindowsOfTheWhole) {
  const AxisWeights whole(Filter::kBicubic, 300, 100, 0, 100, false);
  const AxisWeights part(Filter::kBicubic, 300, 100, 40, 60, false);
  ASSERT_EQ(part.size(), 20u);
  for (uint32_t i = 0; i < part.size(); ++i) {
    EXPECT_EQ(part[i].first, whole[40 + i].first);
    EXPECT_EQ(part[i].weights[0], whole[40 + i].weights[0]);
  }
}

TEST(ResampleTest, AReversedAxisMirrorsItsWindows) {
  const AxisWeights whole(Filter::kLanczos, 301, 100, 10, 70, false);
  const AxisWeights reversed(Filter::kLanczos, 301, 100, 10, 70, true);
  ASSERT_EQ(reversed.size(), whole.size());
  for (uint32_t i = 0; i < whole.size(); ++i) {
    const AxisWeights::Window a = whole[i];
    const AxisWeights::Window b = reversed[whole.size() - 1 - i];
    ASSERT_EQ(a.count, b.count);
    EXPECT_EQ(b.first, 301 - a.first - a.count);
    for (uint32_t x = 0; x < a.count; ++x) {
      EXPECT_EQ(a.weights[x], b.weights[a.count - 1 - x]);
    }
  }
}

TEST(ResampleTest, TheKernelsMakeTheSameBytesOfARow) {
  if (Avx2Kernel() == nullptr) return;  // there is one kernel alone on this processor
  for (const Resize& resize : Resizes()) {
    const AxisWeights weights(resize.filter, resize.in, resize.out, 0, resize.out, false);
    for (const std::vector<uint8_t>& row : Rows(size_t{4} * resize.in)) {
      ASSERT_EQ(RowOf(*Avx2Kernel(), weights, row), RowOf(PortableKernel(), weights, row))
          << "filter " << static_cast<int>(resize.filter) << " " << resize.in << " to "
          << resize.out;
    }
  }
}

TEST(ResampleTest, TheKernelsMakeTheSameBytesOfColumns) {
  if (Avx2Kernel() == nullptr) return;
  for (const Resize& resize : Resizes()) {
    const AxisWeights weights(resize.filter, resize.in, resize.out, 0, resize.out, false);
    const std::vector<std::vector<uint8_t>> kinds = Rows(45);
    for (uint32_t i = 0; i < weights.size(); ++i) {
      std::vector<const uint8_t*> rows;
      for (uint32_t k = 0; k < weights[i].count; ++k) rows.push_back(kinds[(i + k) % 4].data());
      std::vector<uint8_t> portable(45);
      std::vector<uint8_t> avx2(45);
      PortableKernel().columns(weights, i, rows, portable);
      Avx2Kernel()->columns(weights, i, rows, avx2);
      ASSERT_EQ(avx2, portable) << resize.in << " to " << resize.out << ", row " << i;
    }
  }
}

}  // namespace
}  // namespace embercache
