// A walk over the protobuf encoding of an ONNX model, by the field numbers of onnx.proto, to the
// tensors that may name external data. Fields that are not on such a path are passed over.

#include "src/encode/onnx_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>

namespace embercache {
namespace {

constexpr int kMaxDepth = 64;
constexpr uint64_t kMaxLocationBytes = 4096;

// Reads a file in pieces; reading past its end gives nothing.
class FileBytes {
 public:
  explicit FileBytes(int fd) : fd_(fd) {}

  std::optional<uint8_t> At(uint64_t offset) {
    if (offset < begin_ || offset >= begin_ + length_) {
      const ssize_t got = pread(fd_, piece_.data(), piece_.size(), static_cast<off_t>(offset));
      begin_ = offset;
      length_ = got > 0 ? static_cast<uint64_t>(got) : 0;
      if (length_ == 0) return std::nullopt;
    }
    return piece_[offset - begin_];
  }

 private:
  int fd_;
  uint64_t begin_ = 0;
  uint64_t length_ = 0;
  std::array<uint8_t, 4096> piece_{};
};

enum class Message {
  kOther,
  kModel,
  kGraph,
  kNode,
  kAttribute,
  kFunction,
  kTensor,
  kSparseTensor,
  kExternalEntry,
};

// The message that field `number` of `message` holds, where the walk goes on.
Message Nested(Message message, uint64_t number) {
  switch (message) {
    case Message::kModel:
      return number == 7 ? Message::kGraph : number == 25 ? Message::kFunction : Message::kOther;
    case Message::kGraph:
      switch (number) {
        case 1:
          return Message::kNode;
        case 5:
          return Message::kTensor;
        case 15:
          return Message::kSparseTensor;
        default:
          return Message::kOther;
      }
    case Message::kFunction:
      return number == 7 ? Message::kNode : Message::kOther;
    case Message::kNode:
      return number == 5 ? Message::kAttribute : Message::kOther;
    case Message::kAttribute:
      switch (number) {
        case 5:
        case 10:
          return Message::kTensor;
        case 6:
        case 11:
          return Message::kGraph;
        case 22:
        case 23:
          return Message::kSparseTensor;
        default:
          return Message::kOther;
      }
    case Message::kSparseTensor:
      return number <= 2 ? Message::kTensor : Message::kOther;
    case Message::kTensor:
      return number == 13 ? Message::kExternalEntry : Message::kOther;
    default:
      return Message::kOther;
  }
}

class Walk {
 public:
  explicit Walk(int fd) : bytes_(fd) {}

  // False where [at, end) is not the encoding of a message.
  bool Visit(Message message, uint64_t at, uint64_t end, int depth) {
    if (depth > kMaxDepth) return false;
    std::string key;
    std::string value;
    while (at < end) {
      uint64_t tag = 0;
      if (!Varint(at, end, tag)) return false;
      const uint64_t number = tag >> 3;
      uint64_t length = 0;
      switch (tag & 7) {
        case 0: {
          uint64_t ignored = 0;
          if (!Varint(at, end, ignored)) return false;
          continue;
        }
        case 1:
          length = 8;
          break;
        case 5:
          length = 4;
          break;
        case 2:
          if (!Varint(at, end, length)) return false;
          break;
        default:
          return false;
      }
      if (length > end - at) return false;
      if ((tag & 7) == 2) {
        const Message nested = Nested(message, number);
        if (nested != Message::kOther && !Visit(nested, at, at + length, depth + 1)) return false;
        if (message == Message::kExternalEntry && length <= kMaxLocationBytes) {
          if (number == 1) key = Text(at, length);
          if (number == 2) value = Text(at, length);
        }
      }
      at += length;
    }
    if (message == Message::kExternalEntry && key == "location") locations_.insert(value);
    return true;
  }

  std::vector<std::string> locations() const { return {locations_.begin(), locations_.end()}; }

 private:
  bool Varint(uint64_t& at, uint64_t end, uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64 && at < end; shift += 7) {
      const auto byte = bytes_.At(at++);
      if (!byte) return false;
      value |= static_cast<uint64_t>(*byte & 0x7f) << shift;
      if ((*byte & 0x80) == 0) return true;
    }
    return false;
  }

  std::string Text(uint64_t at, uint64_t length) {
    std::string text;
    for (uint64_t i = 0; i < length; ++i) text += static_cast<char>(bytes_.At(at + i).value_or(0));
    return text;
  }

  FileBytes bytes_;
  std::set<std::string> locations_;
};

}  // namespace

Result<std::vector<std::string>> ExternalDataLocations(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Status::FromErrno(errno, path);
  struct stat file{};
  Walk walk(fd);
  const bool read = fstat(fd, &file) == 0 &&
                    walk.Visit(Message::kModel, 0, static_cast<uint64_t>(file.st_size), 0);
  close(fd);
  if (!read) return Status::Invalid(fmt::format("{} is no ONNX model", path));
  return walk.locations();
}

}  // namespace embercache
