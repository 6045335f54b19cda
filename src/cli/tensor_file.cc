#include "src/cli/tensor_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>

#include "src/server/safetensors.h"

namespace embercache {
namespace {

Result<std::string_view> NpyDType(DType dtype) {
  switch (dtype) {
    case DType::kU8:
      return std::string_view("|u1");
    case DType::kI8:
      return std::string_view("|i1");
    case DType::kI16:
      return std::string_view("<i2");
    case DType::kI32:
      return std::string_view("<i4");
    case DType::kI64:
      return std::string_view("<i8");
    case DType::kF16:
      return std::string_view("<f2");
    case DType::kF32:
      return std::string_view("<f4");
    case DType::kF64:
      return std::string_view("<f8");
    case DType::kBF16:
      break;
  }
  return Status::Invalid(fmt::format(
      "the embedding is {}, which .npy does not have; write .safetensors", DTypeName(dtype)));
}

// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, version 1.0.
Result<std::string> NpyHead(const TensorView& tensor) {
  EMBERCACHE_ASSIGN_OR_RETURN(const std::string_view dtype, NpyDType(tensor.dtype));
  std::string shape;
  for (const uint64_t size : tensor.shape) shape += fmt::format("{}, ", size);
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", dtype, shape);
  constexpr size_t kPrefix = 10;
  constexpr size_t kAlignment = 64;
  text.append((kAlignment - (kPrefix + text.size() + 1) % kAlignment) % kAlignment, ' ');
  text += '\n';
  std::string head("\x93NUMPY\x01\x00", 8);
  head += static_cast<char>(text.size() & 0xff);
  head += static_cast<char>(text.size() >> 8);
  return head + text;
}

Result<std::string> HeadOf(TensorFormat format, const TensorView& tensor) {
  if (format == TensorFormat::kNpy) return NpyHead(tensor);
  TensorEntry entry{"embedding", tensor.dtype, tensor.shape, 0};
  for (const ConstBuffer buffer : tensor.bytes) entry.bytes += buffer.size();
  return SafetensorsHead(tensor.metadata, {&entry, 1});
}

Status WriteAll(const std::string& path, const std::string& head,
                std::span<const ConstBuffer> bytes) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "wb"),
                                                             &std::fclose);
  if (!file) return Status::FromErrno(errno, path);
  bool written = std::fwrite(head.data(), 1, head.size(), file.get()) == head.size();
  for (const ConstBuffer buffer : bytes) {
    written = written && std::fwrite(buffer.data(), 1, buffer.size(), file.get()) == buffer.size();
  }
  written = written && std::fflush(file.get()) == 0;
  return written ? Status::Ok() : Status::FromErrno(errno, path);
}

}  // namespace

Result<TensorFormat> TensorFormatOf(std::string_view path) {
  if (path.ends_with(".safetensors")) return TensorFormat::kSafetensors;
  if (path.ends_with(".npy")) return TensorFormat::kNpy;
  return Status::Invalid(fmt::format("'{}' has to end in .safetensors or .npy", path));
}

Status WriteTensorFile(const std::string& path, TensorFormat format, const TensorView& tensor) {
  EMBERCACHE_ASSIGN_OR_RETURN(const std::string head, HeadOf(format, tensor));
  const std::string part = fmt::format("{}.{}.part", path, getpid());
  Status status = WriteAll(part, head, tensor.bytes);
  if (status.ok() && std::rename(part.c_str(), path.c_str()) != 0) {
    status = Status::FromErrno(errno, path);
  }
  if (!status.ok()) {
    (void)std::remove(part.c_str());
    // A folder that is missing is no missing embedding.
    return Status::Unavailable("cannot write " + status.message());
  }
  return Status::Ok();
}

}  // namespace embercache
