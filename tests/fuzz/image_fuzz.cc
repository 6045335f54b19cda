#include "tests/fuzz/image_fuzz.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace embercache {
namespace {

constexpr uint64_t kMaxPixels = uint64_t{1} << 20;

[[noreturn]] void Abort(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

struct Decoded {
  Status status;
  std::vector<uint8_t> pixels;
};

Decoded Decode(OpenImageKind open, std::span<const std::byte> media, const MediaOptions& options) {
  Result<std::unique_ptr<ImageSource>> opened = open(media, options, kMaxPixels);
  if (!opened.ok()) return {opened.status(), {}};
  ImageSource& source = **opened;
  if (source.width() == 0 || source.height() == 0) Abort("an empty picture");
  if (uint64_t{source.width()} * source.height() > kMaxPixels) Abort("a picture over the limit");
  Decoded decoded;
  std::vector<uint8_t> row(size_t{4} * source.width());
  for (uint32_t y = 0; y < source.height(); ++y) {
    decoded.status = source.ReadRow(row);
    if (!decoded.status.ok()) return {decoded.status, {}};
    for (size_t i = 0; i < row.size(); ++i) {
      if (i % 4 != 3) decoded.pixels.push_back(row[i]);
    }
  }
  return decoded;
}

bool ExpectedOf(const Status& status) {
  return status.ok() || status.code() == StatusCode::kInvalid ||
         status.code() == StatusCode::kResourceExhausted;
}

}  // namespace

int FuzzImage(OpenImageKind open, std::span<const std::byte> media) {
  const MediaOptions as_pillow{
      .composite_alpha = false, .apply_exif_orientation = false, .sixteen_bit = SixteenBit::kClip};
  int succeeded = 0;
  for (const MediaOptions& options : {MediaOptions{}, as_pillow}) {
    const Decoded first = Decode(open, media, options);
    if (!ExpectedOf(first.status)) Abort(first.status.ToString().c_str());
    if (first.pixels != Decode(open, media, options).pixels) Abort("the same bytes, other pixels");
    succeeded += first.status.ok() ? 1 : 0;
  }
  return succeeded;
}

}  // namespace embercache

#ifdef EMBERCACHE_FUZZ_OPEN
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  embercache::FuzzImage(&embercache::EMBERCACHE_FUZZ_OPEN, std::as_bytes(std::span(data, size)));
  return 0;
}
#endif
