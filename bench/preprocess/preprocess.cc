// What the encoder makes of a file, for scripts that compare it with Pillow and time both:
//   preprocess tensor CONFIG FILE [OPTIONS]   the prepared tensor: a line with its shape, then
//   float32 preprocess time CONFIG FILE COUNT         milliseconds of each of COUNT runs, one a
//   line preprocess encode MODEL_FOLDER FILE       the embedding: a line with its shape, then its
//   bytes
// CONFIG and OPTIONS are JSON texts: a preprocessor_config.json, and a request's options.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "embercache/encoder.h"
#include "src/encode/preprocess.h"

namespace embercache {
namespace {

constexpr uint64_t kMaxPixels = 178'000'000;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Status MakeTensor(const Preprocessor& preprocessor, const std::string& media,
                  const MediaOptions& options, PreparedItem& item) {
  EMBERCACHE_ASSIGN_OR_RETURN(const auto source,
                              OpenImage(std::as_bytes(std::span(media)), options, kMaxPixels));
  return preprocessor.Run(*source, item);
}

void Write(const std::string& head, std::span<const std::byte> bytes) {
  fmt::print("{}\n", head);
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
}

Status PrintTensor(const std::string& config, const std::string& path, const std::string& json) {
  EMBERCACHE_ASSIGN_OR_RETURN(PreprocessSettings settings, ParsePreprocessorConfig(config));
  EMBERCACHE_ASSIGN_OR_RETURN(const MediaOptions options, ParseMediaOptions(json));
  const Preprocessor preprocessor(std::move(settings), DType::kF32);
  PreparedItem item;
  EMBERCACHE_RETURN_IF_ERROR(MakeTensor(preprocessor, ReadFile(path), options, item));
  Write(fmt::format("{}", fmt::join(item.shape, " ")), {item.data.get(), item.size_bytes});
  return Status::Ok();
}

// Of this process, which has one thread: what others do on the machine does not count.
double CpuMilliseconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

Status PrintTimes(const std::string& config, const std::string& path, int count) {
  EMBERCACHE_ASSIGN_OR_RETURN(PreprocessSettings settings, ParsePreprocessorConfig(config));
  const Preprocessor preprocessor(std::move(settings), DType::kF32);
  const std::string media = ReadFile(path);
  for (int i = 0; i < count; ++i) {
    const double start = CpuMilliseconds();
    PreparedItem item;
    EMBERCACHE_RETURN_IF_ERROR(MakeTensor(preprocessor, media, {}, item));
    fmt::print("{:.3f}\n", CpuMilliseconds() - start);
  }
  return Status::Ok();
}

Status PrintEmbedding(const std::string& model, const std::string& path) {
  EMBERCACHE_ASSIGN_OR_RETURN(const auto encoder, LoadOnnxEncoder(model, {}));
  const std::string media = ReadFile(path);
  EMBERCACHE_ASSIGN_OR_RETURN(const auto item,
                              encoder->Prepare(std::as_bytes(std::span(media)), {}));
  const PreparedItem* items[] = {item.get()};
  EncodedItem out;
  EMBERCACHE_RETURN_IF_ERROR(encoder->Encode(items, {&out, 1}));
  Write(fmt::format("{} {}", out.tokens, out.hidden), out.bytes);
  return Status::Ok();
}

Status Main(const std::vector<std::string>& args) {
  const std::string verb = args.empty() ? "" : args[0];
  if (verb == "tensor" && args.size() >= 3) {
    return PrintTensor(args[1], args[2], args.size() > 3 ? args[3] : "");
  }
  if (verb == "time" && args.size() == 4)
    return PrintTimes(args[1], args[2], std::atoi(args[3].c_str()));
  if (verb == "encode" && args.size() == 3) return PrintEmbedding(args[1], args[2]);
  return Status::Invalid(
      "usage: preprocess tensor CONFIG FILE [OPTIONS] | time CONFIG FILE COUNT | encode MODEL "
      "FILE");
}

}  // namespace
}  // namespace embercache

int main(int argc, char** argv) {
  const embercache::Status status =
      embercache::Main(std::vector<std::string>(argv + 1, argv + argc));
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.ToString());
  return 1;
}
