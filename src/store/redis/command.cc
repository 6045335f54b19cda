#include "src/store/redis/command.h"

#include <array>
#include <utility>

namespace embercache::redis {

CommandWriter& CommandWriter::Add(std::initializer_list<std::string_view> words) {
  return Add(std::span(words.begin(), words.size()));
}

CommandWriter& CommandWriter::Add(std::span<const std::string_view> words) {
  Begin(words.size());
  for (const std::string_view word : words) Word(word);
  return *this;
}

CommandWriter& CommandWriter::Begin(size_t words) {
  ++wire_.commands;
  AppendLength('*', words);
  return *this;
}

CommandWriter& CommandWriter::Word(std::string_view word) {
  AppendLength('$', word.size());
  Append(word);
  Append("\r\n");
  return *this;
}

CommandWriter& CommandWriter::Word(uint64_t number) {
  std::array<char, 20> digits;
  const char* end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  return Word(std::string_view(digits.data(), static_cast<size_t>(end - digits.data())));
}

CommandWriter& CommandWriter::Word(ConstBuffer head, std::span<const ConstBuffer> payload) {
  uint64_t bytes = head.size();
  for (const ConstBuffer& buffer : payload) bytes += buffer.size();
  AppendLength('$', bytes);
  Append({reinterpret_cast<const char*>(head.data()), head.size()});
  for (const ConstBuffer& buffer : payload) {
    if (!buffer.empty()) payloads_.push_back({wire_.text.size(), buffer});
  }
  Append("\r\n");
  return *this;
}

Wire CommandWriter::Finish() {
  const ConstBuffer text = std::as_bytes(std::span(wire_.text));
  size_t sent = 0;
  for (const Payload& payload : payloads_) {
    if (payload.text_before > sent) {
      wire_.pieces.push_back(text.subspan(sent, payload.text_before - sent));
    }
    sent = payload.text_before;
    wire_.pieces.push_back(payload.bytes);
  }
  if (sent < text.size()) wire_.pieces.push_back(text.subspan(sent));
  for (const ConstBuffer& piece : wire_.pieces) wire_.bytes += piece.size();
  payloads_.clear();
  return std::exchange(wire_, {});
}

void CommandWriter::AppendLength(char type, uint64_t length) {
  std::array<char, 24> line;
  line[0] = type;
  char* end = std::to_chars(line.data() + 1, line.data() + line.size() - 2, length).ptr;
  *end++ = '\r';
  *end++ = '\n';
  Append({line.data(), static_cast<size_t>(end - line.data())});
}

}  // namespace embercache::redis
