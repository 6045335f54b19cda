#include "src/server/base64.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

// Four characters are one OR of four table entries, each holding the character's six bits where
// they belong in the three bytes of a little-endian word. A bit above those marks what is no
// base64. Writing stays behind reading: 4 bytes go where 3 of every 4 characters have been read.

namespace embercache {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kBad = uint32_t{1} << 31;
constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

using Table = std::array<uint32_t, 256>;

constexpr std::array<Table, 4> MakeTables() {
  std::array<Table, 4> tables{};
  for (Table& table : tables) table.fill(kBad);
  for (uint32_t value = 0; value < kAlphabet.size(); ++value) {
    const auto c = static_cast<unsigned char>(kAlphabet[value]);
    for (uint32_t place = 0; place < 4; ++place) {
      const uint32_t bits = value << (18 - 6 * place);
      tables[place][c] = (bits >> 16) | (bits & 0xff00) | ((bits & 0xff) << 16);
    }
  }
  return tables;
}

constexpr std::array<Table, 4> kTables = MakeTables();

uint32_t Quad(const unsigned char* c) {
  return kTables[0][c[0]] | kTables[1][c[1]] | kTables[2][c[2]] | kTables[3][c[3]];
}

std::string WhatItIs(unsigned char c) {
  if (c == '\n' || c == '\r') return "a line break; the text has to be on one line (base64 -w0)";
  if (c == '-' || c == '_') {
    return fmt::format("'{}', of the alphabet for URLs; the standard one has '+' and '/'",
                       static_cast<char>(c));
  }
  if (c == '=') return "'=', which stands only at the end, once or twice";
  if (c > ' ' && c < 0x7f) return fmt::format("'{}'", static_cast<char>(c));
  return fmt::format("0x{:02x}", c);
}

// Why `text`, which is not touched from `from` on, is refused; its padding begins at `digits`.
Status Fault(std::span<const std::byte> text, size_t from, size_t digits) {
  for (size_t i = from; i < digits; ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if ((kTables[0][c] & kBad) == 0) continue;
    return Status::Invalid(fmt::format("character {} of the base64 text is {}", i, WhatItIs(c)));
  }
  if (digits < text.size()) {
    return Status::Invalid(fmt::format(
        "the base64 text has {} characters and {} '=' behind them; padding is at most 2, and makes "
        "the length a multiple of 4",
        digits, text.size() - digits));
  }
  return Status::Invalid(fmt::format(
      "the base64 text has {} characters, which is no length of base64: it was cut short", digits));
}

}  // namespace

Result<std::span<std::byte>> DecodeBase64InPlace(std::span<std::byte> text) {
  constexpr size_t kMaxPadding = 2;
  size_t size = text.size();
  while (size > 0 && text[size - 1] == std::byte{'='}) --size;
  const size_t padding = text.size() - size;
  const bool padded_wrongly = padding > 0 && (padding > kMaxPadding || text.size() % 4 != 0);
  if (padded_wrongly || size % 4 == 1) return Fault(text, 0, size);
  const auto* const in = reinterpret_cast<const unsigned char*>(text.data());
  std::byte* out = text.data();
  size_t i = 0;
  for (; i + 4 <= size; i += 4, out += 3) {
    const uint32_t word = Quad(in + i);
    if ((word & kBad) != 0) return Fault(text, i, size);
    std::memcpy(out, &word, 4);
  }
  if (i < size) {
    unsigned char last[4] = {'A', 'A', 'A', 'A'};
    std::memcpy(last, in + i, size - i);
    const uint32_t word = Quad(last);
    if ((word & kBad) != 0) return Fault(text, i, size);
    std::memcpy(out, &word, size - i - 1);
    out += size - i - 1;
  }
  return text.first(static_cast<size_t>(out - text.data()));
}

}  // namespace embercache
