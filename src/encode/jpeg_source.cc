// JPEG through libjpeg-turbo.
//
// Invariants:
// - libjpeg reports errors by longjmp. Every call of it stands in a method that sets the jump, and
// no
//   object with a destructor lives in a frame between the two.
// - A warning that says that picture data is missing or broken is an error; others are harmless.

#include <fmt/format.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>

// jpeglib.h needs <cstdio> before it, and jerror.h needs jpeglib.h.
#include <jpeglib.h>

#include <jerror.h>

#include "src/encode/image_source.h"

namespace embercache {
namespace {

// A progressive file has about ten scans; each costs a pass over all of the picture.
constexpr int kMaxScans = 100;

class JpegSource : public ImageSource {
 public:
  explicit JpegSource(const MediaOptions& options) : ImageSource(options) {}
  ~JpegSource() override { jpeg_destroy_decompress(&jpeg_); }
  JpegSource(const JpegSource&) = delete;
  JpegSource& operator=(const JpegSource&) = delete;

  Status Open(std::span<const std::byte> media, uint64_t max_pixels);

 protected:
  Status DecodeRow(std::span<uint8_t> rgba) override;

 private:
  // First member is what libjpeg points to.
  struct Errors {
    jpeg_error_mgr manager;
    std::jmp_buf jump;
    char message[JMSG_LENGTH_MAX];
  };

  [[noreturn]] static void Fail(j_common_ptr jpeg);
  static void OnMessage(j_common_ptr jpeg, int level);
  static void OnProgress(j_common_ptr jpeg);

  // False where libjpeg failed; errors_.message says why.
  bool ReadHeader(std::span<const std::byte> media);
  bool Start();
  bool ReadScanline(uint8_t* row);
  bool Finish();

  Status Broken() const { return Status::Invalid(fmt::format("broken jpeg: {}", errors_.message)); }

  jpeg_decompress_struct jpeg_{};
  Errors errors_{};
  jpeg_progress_mgr progress_{};
};

void JpegSource::Fail(j_common_ptr jpeg) {
  auto* errors = reinterpret_cast<Errors*>(jpeg->err);
  jpeg->err->format_message(jpeg, errors->message);
  std::longjmp(errors->jump, 1);
}

void JpegSource::OnMessage(j_common_ptr jpeg, int level) {
  if (level >= 0) return;
  switch (jpeg->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
      Fail(jpeg);
    default:
      break;
  }
}

void JpegSource::OnProgress(j_common_ptr jpeg) {
  auto* errors = reinterpret_cast<Errors*>(jpeg->err);
  if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number <= kMaxScans) return;
  std::snprintf(errors->message, sizeof(errors->message), "more than %d scans", kMaxScans);
  std::longjmp(errors->jump, 1);
}

bool JpegSource::ReadHeader(std::span<const std::byte> media) {
  jpeg_.err = jpeg_std_error(&errors_.manager);
  errors_.manager.error_exit = &Fail;
  errors_.manager.emit_message = &OnMessage;
  if (setjmp(errors_.jump)) return false;
  jpeg_create_decompress(&jpeg_);
  progress_.progress_monitor = &OnProgress;
  jpeg_.progress = &progress_;
  jpeg_save_markers(&jpeg_, JPEG_APP0 + 1, 0xffff);
  jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(media.data()),
               static_cast<unsigned long>(media.size()));
  jpeg_read_header(&jpeg_, TRUE);
  return true;
}

bool JpegSource::Start() {
  if (setjmp(errors_.jump)) return false;
  jpeg_start_decompress(&jpeg_);
  return true;
}

bool JpegSource::ReadScanline(uint8_t* row) {
  if (setjmp(errors_.jump)) return false;
  jpeg_read_scanlines(&jpeg_, &row, 1);
  return true;
}

bool JpegSource::Finish() {
  if (setjmp(errors_.jump)) return false;
  jpeg_finish_decompress(&jpeg_);
  return true;
}

Orientation StoredOrientation(const jpeg_decompress_struct& jpeg) {
  for (auto* marker = jpeg.marker_list; marker != nullptr; marker = marker->next) {
    const std::span block(reinterpret_cast<const std::byte*>(marker->data), marker->data_length);
    if (block.size() > 6 && std::memcmp(block.data(), "Exif\0\0", 6) == 0) {
      return ExifOrientation(block);
    }
  }
  return Orientation::kNone;
}

Status JpegSource::Open(std::span<const std::byte> media, uint64_t max_pixels) {
  if (!ReadHeader(media)) return Broken();
  EMBERCACHE_RETURN_IF_ERROR(CheckImageSize(jpeg_.image_width, jpeg_.image_height, max_pixels));
  width_ = jpeg_.image_width;
  height_ = jpeg_.image_height;
  if (options_.apply_exif_orientation) orientation_ = StoredOrientation(jpeg_);
  switch (jpeg_.num_components) {
    case 1:
    case 3:
      jpeg_.out_color_space = JCS_EXT_RGBA;
      break;
    case 4:
      jpeg_.out_color_space = JCS_CMYK;
      break;
    default:
      return Status::Invalid(fmt::format("the jpeg has {} components; 1, 3 and 4 are understood",
                                         jpeg_.num_components));
  }
  return Start() ? Status::Ok() : Broken();
}

// CMYK is stored inverted, as Adobe does it, and as everyone else therefore does it too.
void CmykToRgba(std::span<uint8_t> row) {
  for (size_t i = 0; i < row.size(); i += 4) {
    const uint32_t key = row[i + 3];
    for (size_t c = 0; c < 3; ++c) {
      const uint32_t product = (255u - row[i + c]) * key + 128;
      row[i + c] = static_cast<uint8_t>(key - ((product + (product >> 8)) >> 8));
    }
  }
}

Status JpegSource::DecodeRow(std::span<uint8_t> rgba) {
  if (!ReadScanline(rgba.data())) return Broken();
  if (jpeg_.out_color_space == JCS_CMYK) CmykToRgba(rgba);
  if (jpeg_.output_scanline == height_ && !Finish()) return Broken();
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<ImageSource>> OpenJpeg(std::span<const std::byte> media,
                                              const MediaOptions& options, uint64_t max_pixels) {
  auto source = std::make_unique<JpegSource>(options);
  EMBERCACHE_RETURN_IF_ERROR(source->Open(media, max_pixels));
  return std::unique_ptr<ImageSource>(std::move(source));
}

}  // namespace embercache
