// PNG through libpng.
//
// Invariants:
// - libpng reports errors by longjmp. Every call of it stands in a method that sets the jump, and
// no
//   object with a destructor lives in a frame between the two.
// - All rows arrive as 8-bit RGBA, except 16-bit grey that is to be clipped, which arrives as
//   big-endian grey and alpha.

#include <fmt/format.h>
#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include "src/encode/image_source.h"

namespace embercache {
namespace {

constexpr size_t kSignatureBytes = 8;
constexpr size_t kChunkHeadBytes = 8;
constexpr size_t kChunkCrcBytes = 4;

class PngSource : public ImageSource {
 public:
  explicit PngSource(const MediaOptions& options) : ImageSource(options) {}
  ~PngSource() override { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngSource(const PngSource&) = delete;
  PngSource& operator=(const PngSource&) = delete;

  Status Open(std::span<const std::byte> media, uint64_t max_pixels);

 protected:
  Status DecodeRow(std::span<uint8_t> rgba) override;

 private:
  [[noreturn]] static void OnError(png_structp png, png_const_charp message);
  static void OnWarning(png_structp, png_const_charp) {}
  static void Read(png_structp png, png_bytep to, size_t bytes);

  // False where libpng failed; message_ says why.
  bool ReadHeader();
  bool StartRows();
  bool ReadImage(uint8_t* pixels, size_t row_bytes);
  bool ReadPngRow(uint8_t* row);
  bool Finish();

  Status Broken() const { return Status::Invalid(fmt::format("broken png: {}", message_)); }

  std::span<const std::byte> rest_;  // what libpng has not read
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  char message_[128] = "out of memory";
  bool clip_grey_ = false;
  bool interlaced_ = false;
  std::vector<uint8_t> image_;  // all rows, where they do not come in order
  uint32_t next_row_ = 0;
};

void PngSource::OnError(png_structp png, png_const_charp message) {
  auto* source = static_cast<PngSource*>(png_get_error_ptr(png));
  std::snprintf(source->message_, sizeof(source->message_), "%s", message);
  png_longjmp(png, 1);
}

void PngSource::Read(png_structp png, png_bytep to, size_t bytes) {
  auto* source = static_cast<PngSource*>(png_get_io_ptr(png));
  if (bytes > source->rest_.size()) png_error(png, "the data ends early");
  std::memcpy(to, source->rest_.data(), bytes);
  source->rest_ = source->rest_.subspan(bytes);
}

bool PngSource::ReadHeader() {
  png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &OnError, &OnWarning);
  if (png_ == nullptr) return false;
  if (setjmp(png_jmpbuf(png_))) return false;
  info_ = png_create_info_struct(png_);
  if (info_ == nullptr) return false;
  png_set_read_fn(png_, this, &Read);
  png_set_user_limits(png_, kMaxSide, kMaxSide);
  // Only transparency matters among the ancillary chunks; text is never inflated.
  png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_set_crc_action(png_, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
  png_read_info(png_, info_);
  return true;
}

bool PngSource::StartRows() {
  if (setjmp(png_jmpbuf(png_))) return false;
  if (clip_grey_) {
    png_set_tRNS_to_alpha(png_);
  } else {
    png_set_expand(png_);
    png_set_strip_16(png_);
    png_set_gray_to_rgb(png_);
  }
  png_set_add_alpha(png_, 0xffff, PNG_FILLER_AFTER);
  png_set_interlace_handling(png_);
  png_read_update_info(png_, info_);
  return true;
}

bool PngSource::ReadImage(uint8_t* pixels, size_t row_bytes) {
  if (setjmp(png_jmpbuf(png_))) return false;
  const int passes = png_set_interlace_handling(png_);
  for (int pass = 0; pass < passes; ++pass) {
    for (size_t y = 0; y < height_; ++y) png_read_row(png_, pixels + y * row_bytes, nullptr);
  }
  return true;
}

bool PngSource::ReadPngRow(uint8_t* row) {
  if (setjmp(png_jmpbuf(png_))) return false;
  png_read_row(png_, row, nullptr);
  return true;
}

bool PngSource::Finish() {
  if (setjmp(png_jmpbuf(png_))) return false;
  png_read_end(png_, nullptr);
  return true;
}

uint32_t BigEndian32(std::span<const std::byte> bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint32_t>(bytes[i]);
  return value;
}

// Wherever the eXIf chunk lies: it may follow the picture.
Orientation StoredOrientation(std::span<const std::byte> media) {
  std::span<const std::byte> rest = media.subspan(kSignatureBytes);
  while (rest.size() > kChunkHeadBytes) {
    const size_t length = BigEndian32(rest);
    const std::string_view type(reinterpret_cast<const char*>(rest.data()) + 4, 4);
    rest = rest.subspan(kChunkHeadBytes);
    if (type == "IEND" || rest.size() < length + kChunkCrcBytes) break;
    if (type == "eXIf") return ExifOrientation(rest.first(length));
    rest = rest.subspan(length + kChunkCrcBytes);
  }
  return Orientation::kNone;
}

Status PngSource::Open(std::span<const std::byte> media, uint64_t max_pixels) {
  rest_ = media;
  // The first chunk is IHDR, or libpng refuses it. Read here, so that a size over the limit is told
  // from a broken file.
  constexpr size_t kWidthAt = kSignatureBytes + kChunkHeadBytes;
  if (media.size() < kWidthAt + 8) return Status::Invalid("broken png: the data ends early");
  width_ = BigEndian32(media.subspan(kWidthAt));
  height_ = BigEndian32(media.subspan(kWidthAt + 4));
  EMBERCACHE_RETURN_IF_ERROR(CheckImageSize(width_, height_, max_pixels));
  if (!ReadHeader()) return Broken();
  if (options_.apply_exif_orientation) orientation_ = StoredOrientation(media);
  const int colour_type = png_get_color_type(png_, info_);
  has_alpha_ =
      (colour_type & PNG_COLOR_MASK_ALPHA) != 0 || png_get_valid(png_, info_, PNG_INFO_tRNS) != 0;
  clip_grey_ = options_.sixteen_bit == SixteenBit::kClip && colour_type == PNG_COLOR_TYPE_GRAY &&
               png_get_bit_depth(png_, info_) == 16;
  interlaced_ = png_get_interlace_type(png_, info_) != PNG_INTERLACE_NONE;
  if (!StartRows()) return Broken();
  const size_t row_bytes = size_t{4} * width_;
  if (png_get_rowbytes(png_, info_) != row_bytes) {
    return Status::Internal("libpng gives rows of an unexpected size");
  }
  if (interlaced_) {
    image_.resize(row_bytes * height_);
    if (!ReadImage(image_.data(), row_bytes)) return Broken();
  }
  return Status::Ok();
}

// In place: big-endian grey and alpha of 16 bits to RGBA of 8.
void ClipGrey(std::span<uint8_t> row) {
  for (size_t i = 0; i < row.size(); i += 4) {
    const uint8_t grey = row[i] != 0 ? 255 : row[i + 1];
    const uint8_t alpha = row[i + 2];
    row[i] = row[i + 1] = row[i + 2] = grey;
    row[i + 3] = alpha;
  }
}

Status PngSource::DecodeRow(std::span<uint8_t> rgba) {
  if (interlaced_) {
    std::memcpy(rgba.data(), image_.data() + rgba.size() * next_row_, rgba.size());
  } else if (!ReadPngRow(rgba.data())) {
    return Broken();
  }
  if (clip_grey_) ClipGrey(rgba);
  if (++next_row_ == height_ && !Finish()) return Broken();
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<ImageSource>> OpenPng(std::span<const std::byte> media,
                                             const MediaOptions& options, uint64_t max_pixels) {
  auto source = std::make_unique<PngSource>(options);
  EMBERCACHE_RETURN_IF_ERROR(source->Open(media, max_pixels));
  return std::unique_ptr<ImageSource>(std::move(source));
}

}  // namespace embercache
