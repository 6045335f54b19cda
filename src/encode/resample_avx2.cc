// The passes of the resize with AVX2.
//
// Invariants:
// - Weights are multiplied in two parts of 16 bits. The low part is left out where it cannot change
//   the byte, which is nearly always; the bytes are those of PortableKernel. All sums fit 32 bits.
// - Only functions with the target attribute hold AVX2 code: this file is built for any processor.

#include "src/encode/resample.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

namespace embercache {
namespace {

#define EMBERCACHE_AVX2 __attribute__((target("avx2")))

constexpr int kHalf = 1 << (kFractionBits - 1);

EMBERCACHE_AVX2 inline __m128i WithoutFraction(__m128i sums) {
  return _mm_srai_epi32(sums, kFractionBits);
}

// All ones where the low parts, which lie between -below and above, change no byte.
EMBERCACHE_AVX2 inline __m128i Sure(__m128i sums, __m128i below, __m128i above) {
  return _mm_cmpeq_epi32(WithoutFraction(_mm_sub_epi32(sums, below)),
                         WithoutFraction(_mm_add_epi32(sums, above)));
}

EMBERCACHE_AVX2 inline bool AllOnes(__m128i lanes) {
  return _mm_movemask_epi8(lanes) == 0xffff;
}

EMBERCACHE_AVX2 void Split(std::span<const uint8_t> rgba, PlanarRow out) {
  const __m128i by_colour = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  size_t x = 0;
  for (; x + 16 <= out.width(); x += 16) {
    const auto* pixels = reinterpret_cast<const __m128i*>(&rgba[4 * x]);
    __m128i four[4];  // of each four pixels: red, green, blue, the rest
    for (int i = 0; i < 4; ++i) four[i] = _mm_shuffle_epi8(_mm_loadu_si128(pixels + i), by_colour);
    const __m128i red_green[2] = {_mm_unpacklo_epi32(four[0], four[1]),
                                  _mm_unpacklo_epi32(four[2], four[3])};
    const __m128i blue[2] = {_mm_unpackhi_epi32(four[0], four[1]),
                             _mm_unpackhi_epi32(four[2], four[3])};
    const auto store = [&](size_t colour, __m128i bytes) EMBERCACHE_AVX2 {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out.plane(colour) + x), bytes);
    };
    store(0, _mm_unpacklo_epi64(red_green[0], red_green[1]));
    store(1, _mm_unpackhi_epi64(red_green[0], red_green[1]));
    store(2, _mm_unpacklo_epi64(blue[0], blue[1]));
  }
  for (; x < out.width(); ++x) {
    for (size_t colour = 0; colour < 3; ++colour) out.plane(colour)[x] = rgba[4 * x + colour];
  }
}

EMBERCACHE_AVX2 inline __m128i Load(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

EMBERCACHE_AVX2 inline __m128i LoadHalf(const void* from) {
  return _mm_loadl_epi64(static_cast<const __m128i*>(from));
}

EMBERCACHE_AVX2 inline __m256i LoadLong(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

EMBERCACHE_AVX2 inline __m128i AddLanes(__m256i lanes) {
  return _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
}

// Sums over one window, four partial ones for each colour.
struct ColourSums {
  __m128i colour[3];
};

// `groups` eights of bytes from `first` on. kGroups is the same where it is known when this is
// built, else 0.
template <uint32_t kGroups>
EMBERCACHE_AVX2 inline ColourSums WindowSums(const PlanarRow& row, uint32_t first,
                                             const int16_t* weights, uint32_t groups) {
  const uint32_t count = 8 * (kGroups != 0 ? kGroups : groups);
  const uint8_t* bytes[3] = {row.plane(0) + first, row.plane(1) + first, row.plane(2) + first};
  __m256i sums[3] = {};
  uint32_t at = 0;
  for (; at + 16 <= count; at += 16) {
    const __m256i sixteen = LoadLong(weights + at);
    for (int c = 0; c < 3; ++c) {
      const __m256i pixels = _mm256_cvtepu8_epi16(Load(bytes[c] + at));
      sums[c] = _mm256_add_epi32(sums[c], _mm256_madd_epi16(pixels, sixteen));
    }
  }
  ColourSums all{{AddLanes(sums[0]), AddLanes(sums[1]), AddLanes(sums[2])}};
  if (at == count) return all;
  const __m128i eight = Load(weights + at);
  for (int c = 0; c < 3; ++c) {
    const __m128i pixels = _mm_cvtepu8_epi16(LoadHalf(bytes[c] + at));
    all.colour[c] = _mm_add_epi32(all.colour[c], _mm_madd_epi16(pixels, eight));
  }
  return all;
}

// Of each of two windows' partial sums two are left.
EMBERCACHE_AVX2 inline ColourSums Fold(const ColourSums& a, const ColourSums& b) {
  ColourSums ab;
  for (int c = 0; c < 3; ++c) {
    ab.colour[c] = _mm_add_epi32(_mm_unpacklo_epi32(a.colour[c], b.colour[c]),
                                 _mm_unpackhi_epi32(a.colour[c], b.colour[c]));
  }
  return ab;
}

uint8_t ExactAlong(const AxisWeights::Window& window, const uint8_t* in) {
  int32_t sum = 0;
  for (uint32_t x = 0; x < window.count; ++x) sum += in[window.first + x] * window.weights[x];
  return RoundedByte(sum);
}

// The sums of four windows with one part of their weights.
template <uint32_t kGroups>
EMBERCACHE_AVX2 inline ColourSums FourWindows(const PlanarRow& row, const uint32_t* firsts,
                                              const int16_t* weights, uint32_t groups) {
  const size_t step = size_t{8} * (kGroups != 0 ? kGroups : groups);
  const ColourSums ab = Fold(WindowSums<kGroups>(row, firsts[0], weights, groups),
                             WindowSums<kGroups>(row, firsts[1], weights + step, groups));
  const ColourSums cd = Fold(WindowSums<kGroups>(row, firsts[2], weights + 2 * step, groups),
                             WindowSums<kGroups>(row, firsts[3], weights + 3 * step, groups));
  ColourSums sums;
  for (int c = 0; c < 3; ++c) {
    sums.colour[c] = _mm_add_epi32(_mm_unpacklo_epi64(ab.colour[c], cd.colour[c]),
                                   _mm_unpackhi_epi64(ab.colour[c], cd.colour[c]));
  }
  return sums;
}

template <uint32_t kGroups>
EMBERCACHE_AVX2 void RowOf(const AxisWeights& weights, const PlanarRow in, const PlanarRow out) {
  const uint32_t groups = weights.groups();
  const uint32_t size = weights.size();
  const AxisWeights::Window start = weights[0];
  const size_t step = size_t{8} * groups;
  const __m128i shift = _mm_cvtsi32_si128(weights.shift());
  const __m128i half = _mm_set1_epi32(kHalf);
  uint32_t i = 0;
  for (; i + 4 <= size; i += 4) {
    const uint32_t* firsts = weights.firsts() + i;
    const __m128i below = Load(weights.most_below() + i);
    const __m128i above = Load(weights.most_above() + i);
    ColourSums sums = FourWindows<kGroups>(in, firsts, start.high + i * step, groups);
    __m128i sure = _mm_set1_epi32(-1);
    for (int c = 0; c < 3; ++c) {
      sums.colour[c] = _mm_add_epi32(_mm_sll_epi32(sums.colour[c], shift), half);
      sure = _mm_and_si128(sure, Sure(sums.colour[c], below, above));
    }
    if (!AllOnes(sure)) {
      const ColourSums low = FourWindows<kGroups>(in, firsts, start.low + i * step, groups);
      for (int c = 0; c < 3; ++c) sums.colour[c] = _mm_add_epi32(sums.colour[c], low.colour[c]);
    }
    for (size_t c = 0; c < 3; ++c) {
      const __m128i words = _mm_packs_epi32(WithoutFraction(sums.colour[c]), _mm_setzero_si128());
      const int bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
      std::memcpy(out.plane(c) + i, &bytes, 4);
    }
  }
  for (; i < size; ++i) {
    for (size_t c = 0; c < 3; ++c) out.plane(c)[i] = ExactAlong(weights[i], in.plane(c));
  }
}

void Row(const AxisWeights& weights, PlanarRow in, PlanarRow out) {
  switch (weights.groups()) {
    case 1:
      return RowOf<1>(weights, in, out);
    case 2:
      return RowOf<2>(weights, in, out);
    case 3:
      return RowOf<3>(weights, in, out);
    case 4:
      return RowOf<4>(weights, in, out);
    default:
      return RowOf<0>(weights, in, out);
  }
}

uint8_t ExactDown(const AxisWeights::Window& window, std::span<const uint8_t* const> rows,
                  size_t at) {
  int32_t sum = 0;
  for (size_t k = 0; k < window.count; ++k) sum += rows[k][at] * window.weights[k];
  return RoundedByte(sum);
}

// The sums of 16 columns from `at` on over the rows of a window: their products with two weights at
// a time.
struct ColumnSums {
  __m256i low;   // of the first 8 columns
  __m256i high;  // of the others
};

EMBERCACHE_AVX2 inline void AddRows(__m128i first, __m128i second, const int16_t* weights,
                                    ColumnSums& sums) {
  int pair = 0;
  std::memcpy(&pair, weights, 4);
  const __m256i two = _mm256_set1_epi32(pair);
  const __m256i low = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(first, second));
  const __m256i high = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(first, second));
  sums.low = _mm256_add_epi32(sums.low, _mm256_madd_epi16(low, two));
  sums.high = _mm256_add_epi32(sums.high, _mm256_madd_epi16(high, two));
}

EMBERCACHE_AVX2 inline ColumnSums SumColumns(const int16_t* weights, const uint8_t* const* rows,
                                             uint32_t count, size_t at) {
  ColumnSums sums{_mm256_setzero_si256(), _mm256_setzero_si256()};
  uint32_t k = 0;
  for (; k + 2 <= count; k += 2) {
    AddRows(Load(rows[k] + at), Load(rows[k + 1] + at), weights + k, sums);
  }
  if (k < count) AddRows(Load(rows[k] + at), _mm_setzero_si128(), weights + k, sums);
  return sums;
}

EMBERCACHE_AVX2 inline __m256i SureLong(__m256i sums, __m256i below, __m256i above) {
  return _mm256_cmpeq_epi32(_mm256_srai_epi32(_mm256_sub_epi32(sums, below), kFractionBits),
                            _mm256_srai_epi32(_mm256_add_epi32(sums, above), kFractionBits));
}

EMBERCACHE_AVX2 void Columns(const AxisWeights& weights, uint32_t i,
                             std::span<const uint8_t* const> rows, std::span<uint8_t> out) {
  const AxisWeights::Window window = weights[i];
  const __m128i shift = _mm_cvtsi32_si128(weights.shift());
  const __m256i half = _mm256_set1_epi32(kHalf);
  const __m256i below = _mm256_set1_epi32(weights.most_below()[i]);
  const __m256i above = _mm256_set1_epi32(weights.most_above()[i]);
  size_t at = 0;
  for (; at + 16 <= out.size(); at += 16) {
    ColumnSums sums = SumColumns(window.high, rows.data(), window.count, at);
    sums.low = _mm256_add_epi32(_mm256_sll_epi32(sums.low, shift), half);
    sums.high = _mm256_add_epi32(_mm256_sll_epi32(sums.high, shift), half);
    const __m256i sure =
        _mm256_and_si256(SureLong(sums.low, below, above), SureLong(sums.high, below, above));
    if (_mm256_movemask_epi8(sure) != -1) {
      const ColumnSums rest = SumColumns(window.low, rows.data(), window.count, at);
      sums.low = _mm256_add_epi32(sums.low, rest.low);
      sums.high = _mm256_add_epi32(sums.high, rest.high);
    }
    // Packing works within lanes; the permutation puts the quarters in order again.
    const __m256i words =
        _mm256_permute4x64_epi64(_mm256_packs_epi32(_mm256_srai_epi32(sums.low, kFractionBits),
                                                    _mm256_srai_epi32(sums.high, kFractionBits)),
                                 0xd8);
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(&out[at]),
        _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  }
  for (; at < out.size(); ++at) out[at] = ExactDown(window, rows, at);
}

}  // namespace

const ResampleKernel* Avx2Kernel() {
  static constexpr ResampleKernel kKernel{&Split, &Row, &Columns};
  static const bool supported = __builtin_cpu_supports("avx2") != 0;
  return supported ? &kKernel : nullptr;
}

}  // namespace embercache

#else

namespace embercache {

const ResampleKernel* Avx2Kernel() {
  return nullptr;
}

}  // namespace embercache

#endif
