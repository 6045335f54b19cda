#include "src/cache/finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace embercache {
namespace {

template <typename T>
bool NonFinite(const std::vector<T>& values, DType dtype) {
  const ConstBuffer buffer = std::as_bytes(std::span(values));
  return HasNonFinite(std::span(&buffer, 1), dtype);
}

TEST(FiniteTest, OneNanOrInfAmongMillionsIsFound) {
  std::vector<float> values(1'000'003, std::numeric_limits<float>::max());
  EXPECT_FALSE(NonFinite(values, DType::kF32));
  for (float bad : {std::nanf(""), -std::numeric_limits<float>::infinity()}) {
    values[777'777] = bad;
    EXPECT_TRUE(NonFinite(values, DType::kF32));
  }
}

TEST(FiniteTest, EachTypeHasItsOwnExponent) {
  EXPECT_FALSE(NonFinite<uint16_t>({0x7bff, 0xfbff}, DType::kF16));
  EXPECT_TRUE(NonFinite<uint16_t>({0, 0xfc00}, DType::kF16));
  EXPECT_FALSE(NonFinite<uint16_t>({0x7f7f, 0x7c00}, DType::kBF16));
  EXPECT_TRUE(NonFinite<uint16_t>({0x7f80}, DType::kBF16));
  EXPECT_TRUE(NonFinite<double>({1, HUGE_VAL}, DType::kF64));
  EXPECT_FALSE(NonFinite<uint32_t>({0x7f800000U}, DType::kI32));
}

}  // namespace
}  // namespace embercache
