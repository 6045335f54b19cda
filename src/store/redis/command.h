#pragma once

#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "embercache/store.h"

namespace embercache::redis {

// Commands as they go over the wire: text of ours, and payload that stays where the caller has it.
struct Wire {
  std::vector<char> text;
  std::vector<ConstBuffer> pieces;  // what is sent, in order; slices of `text` and of payload
  uint64_t bytes = 0;
  size_t commands = 0;  // as many replies come

  Wire() = default;
  // A vector's memory stays where it is when it is moved, so the pieces stay true.
  Wire(Wire&&) = default;
  Wire& operator=(Wire&&) = default;
};

// Writes commands for one Wire, as arrays of bulk strings.
class CommandWriter {
 public:
  CommandWriter() { wire_.text.reserve(kUsualTextBytes); }

  CommandWriter& Add(std::initializer_list<std::string_view> words);
  CommandWriter& Add(std::span<const std::string_view> words);

  // A command of `words` words, which follow one by one.
  CommandWriter& Begin(size_t words);
  CommandWriter& Word(std::string_view word);
  CommandWriter& Word(uint64_t number);
  // One word made of `head`, which is copied, and of `payload`, which has to live until the command
  // is sent.
  CommandWriter& Word(ConstBuffer head, std::span<const ConstBuffer> payload);

  // Leaves the writer empty.
  Wire Finish();

 private:
  void Append(std::string_view text) {
    wire_.text.insert(wire_.text.end(), text.begin(), text.end());
  }
  void AppendLength(char type, uint64_t length);

  static constexpr size_t kUsualTextBytes = 320;
  struct Payload {
    size_t text_before;  // bytes of text that go out before it
    ConstBuffer bytes;
  };
  Wire wire_;
  std::vector<Payload> payloads_;
};

}  // namespace embercache::redis
