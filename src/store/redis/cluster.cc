#include "src/store/redis/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

namespace embercache::redis {
namespace {

// CRC-16/XMODEM: polynomial 0x1021, initial value 0.
constexpr std::array<uint16_t, 256> kCrcTable = [] {
  std::array<uint16_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t crc = i << 8;
    for (int bit = 0; bit < 8; ++bit) crc = (crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0);
    table[i] = static_cast<uint16_t>(crc);
  }
  return table;
}();

uint16_t Crc16(std::string_view text) {
  uint32_t crc = 0;
  for (const char c : text) {
    crc = (crc << 8 ^ kCrcTable[(crc >> 8 ^ static_cast<uint8_t>(c)) & 0xff]) & 0xffff;
  }
  return static_cast<uint16_t>(crc);
}

template <typename Number>
bool ParseNumber(std::string_view text, Number max, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number <= max;
}

std::string_view NextWord(std::string_view& text) {
  const size_t space = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, space);
  text.remove_prefix(std::min(space + 1, text.size()));
  return word;
}

bool ParseRange(const RespValue& entry, const Endpoint& asked, SlotRange& range) {
  if (entry.elements.size() < 3 || entry.elements[2].elements.size() < 2) return false;
  const int64_t first = entry.elements[0].integer;
  const int64_t last = entry.elements[1].integer;
  const RespValue& host = entry.elements[2].elements[0];
  const int64_t port = entry.elements[2].elements[1].integer;
  if (first < 0 || first > last || last >= static_cast<int64_t>(kSlots)) return false;
  if (port < 1 || port > 65535) return false;
  const bool nameless = host.IsNull() || host.text.empty() || host.text == "?";
  range = {static_cast<uint16_t>(first),
           static_cast<uint16_t>(last),
           {nameless ? asked.host : host.text, static_cast<uint16_t>(port), ""}};
  return !range.master.host.empty();
}

}  // namespace

uint16_t SlotOf(std::string_view key) {
  const size_t open = key.find('{');
  if (open != key.npos) {
    const size_t close = key.find('}', open + 1);
    if (close != key.npos && close > open + 1) key = key.substr(open + 1, close - open - 1);
  }
  return Crc16(key) % kSlots;
}

Result<std::vector<SlotRange>> ParseSlotRanges(const RespValue& reply, const Endpoint& asked) {
  std::vector<SlotRange> ranges;
  for (const RespValue& entry : reply.elements) {
    SlotRange range;
    if (!ParseRange(entry, asked, range)) {
      return Status::Unavailable("an answer to CLUSTER SLOTS that is not understood");
    }
    ranges.push_back(std::move(range));
  }
  if (ranges.empty()) return Status::Unavailable("the Cluster has no slots yet");
  return ranges;
}

std::optional<Redirection> ParseRedirection(std::string_view error, const Endpoint& asked) {
  Redirection redirection;
  const std::string_view word = NextWord(error);
  redirection.ask = word == "ASK";
  if (!redirection.ask && word != "MOVED") return std::nullopt;
  if (!ParseNumber<uint16_t>(NextWord(error), kSlots - 1, redirection.slot)) return std::nullopt;
  const std::string_view address = NextWord(error);
  const size_t colon = address.rfind(':');
  if (colon == address.npos) return std::nullopt;
  const std::string_view host = address.substr(0, colon);
  uint16_t port = 0;
  if (!ParseNumber<uint16_t>(address.substr(colon + 1), 65535, port) || port == 0) {
    return std::nullopt;
  }
  redirection.endpoint = {std::string(host.empty() ? asked.host : host), port, ""};
  if (redirection.endpoint.host.empty()) return std::nullopt;
  return redirection;
}

Status StatusOfError(std::string_view error) {
  const std::string_view code = error.substr(0, error.find(' '));
  std::string message = fmt::format("the server says {}", error.substr(0, 200));
  if (code == "OOM" || code == "MISCONF") return Status::ResourceExhausted(std::move(message));
  if (code == "WRONGTYPE") return Status::Corruption(std::move(message));
  constexpr std::array<std::string_view, 10> kPassing = {
      "ASK",        "BUSY",       "CLUSTERDOWN", "EXECABORT", "LOADING",
      "MASTERDOWN", "NOREPLICAS", "MOVED",       "READONLY",  "TRYAGAIN"};
  const bool passes = std::find(kPassing.begin(), kPassing.end(), code) != kPassing.end();
  return {StatusCode::kUnavailable, std::move(message), passes};
}

}  // namespace embercache::redis
