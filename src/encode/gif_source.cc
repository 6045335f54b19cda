// GIF through giflib: the first frame on its canvas. Nothing after that frame is read.

#include <fmt/format.h>
#include <gif_lib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "src/encode/image_source.h"

namespace embercache {
namespace {

struct GifClose {
  void operator()(GifFileType* gif) const { DGifCloseFile(gif, nullptr); }
};

class GifSource : public ImageSource {
 public:
  explicit GifSource(const MediaOptions& options) : ImageSource(options) {}

  Status Open(std::span<const std::byte> media, uint64_t max_pixels);

 protected:
  Status DecodeRow(std::span<uint8_t> rgba) override;

 private:
  static int Read(GifFileType* gif, GifByteType* to, int bytes);

  // Reads up to the first frame's data, and notes its transparent index on the way.
  Status FindFrame();
  Status ReadExtension();
  Status CheckFrame(uint64_t max_pixels);
  void MakePalette();
  Status ReadInterlaced();

  Status Broken(std::string_view why) const {
    return Status::Invalid(fmt::format("broken gif: {}", why));
  }
  Status Failed(int error) const {
    const char* why = error == D_GIF_ERR_READ_FAILED ? nullptr : GifErrorString(error);
    return Broken(why != nullptr ? why : "the data ends early");
  }
  Status Failed() const { return Failed(gif_->Error); }

  std::span<const std::byte> rest_;  // what giflib has not read
  std::unique_ptr<GifFileType, GifClose> gif_;
  std::array<std::array<uint8_t, 4>, 256> palette_{};
  std::optional<uint8_t> transparent_;
  std::vector<uint8_t> frame_;  // indices, where the rows do not come in order
  std::vector<uint8_t> line_;
  uint32_t next_row_ = 0;
};

int GifSource::Read(GifFileType* gif, GifByteType* to, int bytes) {
  auto* source = static_cast<GifSource*>(gif->UserData);
  const size_t count = std::min(static_cast<size_t>(bytes), source->rest_.size());
  std::memcpy(to, source->rest_.data(), count);
  source->rest_ = source->rest_.subspan(count);
  return static_cast<int>(count);
}

Status GifSource::ReadExtension() {
  int code = 0;
  GifByteType* block = nullptr;  // its length, then its bytes
  if (DGifGetExtension(gif_.get(), &code, &block) == GIF_ERROR) return Failed();
  constexpr uint8_t kHasTransparency = 1;
  if (code == GRAPHICS_EXT_FUNC_CODE && block != nullptr && block[0] >= 4 &&
      (block[1] & kHasTransparency) != 0) {
    transparent_ = block[4];
  }
  while (block != nullptr) {
    if (DGifGetExtensionNext(gif_.get(), &block) == GIF_ERROR) return Failed();
  }
  return Status::Ok();
}

Status GifSource::FindFrame() {
  for (;;) {
    GifRecordType record = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(gif_.get(), &record) == GIF_ERROR) return Failed();
    switch (record) {
      case EXTENSION_RECORD_TYPE:
        EMBERCACHE_RETURN_IF_ERROR(ReadExtension());
        break;
      case IMAGE_DESC_RECORD_TYPE:
        return DGifGetImageDesc(gif_.get()) == GIF_ERROR ? Failed() : Status::Ok();
      default:
        return Broken("it has no picture");
    }
  }
}

// The canvas grows to hold the frame.
Status GifSource::CheckFrame(uint64_t max_pixels) {
  const GifImageDesc& frame = gif_->Image;
  if (frame.Left < 0 || frame.Top < 0 || frame.Width < 1 || frame.Height < 1) {
    return Broken(fmt::format("its first frame is {}x{} pixels", frame.Width, frame.Height));
  }
  width_ = static_cast<uint32_t>(std::max(gif_->SWidth, frame.Left + frame.Width));
  height_ = static_cast<uint32_t>(std::max(gif_->SHeight, frame.Top + frame.Height));
  return CheckImageSize(width_, height_, max_pixels);
}

void GifSource::MakePalette() {
  for (size_t i = 0; i < palette_.size(); ++i) {
    const auto grey = static_cast<uint8_t>(i);
    palette_[i] = {grey, grey, grey, 255};
  }
  const ColorMapObject* map =
      gif_->Image.ColorMap != nullptr ? gif_->Image.ColorMap : gif_->SColorMap;
  if (map != nullptr) {
    for (size_t i = 0; i < static_cast<size_t>(map->ColorCount); ++i) {
      const GifColorType& colour = map->Colors[i];
      palette_[i] = {colour.Red, colour.Green, colour.Blue, 255};
    }
  }
  if (transparent_) palette_[*transparent_][3] = 0;
}

Status GifSource::ReadInterlaced() {
  const auto width = static_cast<size_t>(gif_->Image.Width);
  const auto height = static_cast<size_t>(gif_->Image.Height);
  frame_.resize(width * height);
  struct Pass {
    size_t first;
    size_t step;
  };
  for (const Pass pass : {Pass{0, 8}, Pass{4, 8}, Pass{2, 4}, Pass{1, 2}}) {
    for (size_t y = pass.first; y < height; y += pass.step) {
      if (DGifGetLine(gif_.get(), &frame_[y * width], gif_->Image.Width) == GIF_ERROR) {
        return Failed();
      }
    }
  }
  return Status::Ok();
}

Status GifSource::Open(std::span<const std::byte> media, uint64_t max_pixels) {
  rest_ = media;
  int error = 0;
  gif_.reset(DGifOpen(this, &Read, &error));
  if (!gif_) return Failed(error);
  EMBERCACHE_RETURN_IF_ERROR(FindFrame());
  EMBERCACHE_RETURN_IF_ERROR(CheckFrame(max_pixels));
  has_alpha_ = transparent_.has_value();
  MakePalette();
  line_.resize(static_cast<size_t>(gif_->Image.Width));
  return gif_->Image.Interlace ? ReadInterlaced() : Status::Ok();
}

Status GifSource::DecodeRow(std::span<uint8_t> rgba) {
  const auto top = static_cast<uint32_t>(gif_->Image.Top);
  const auto left = static_cast<size_t>(gif_->Image.Left);
  const uint32_t y = next_row_++;
  const uint8_t outside = transparent_.value_or(0);
  for (size_t x = 0; x < width_; ++x) std::memcpy(&rgba[4 * x], palette_[outside].data(), 4);
  if (y < top || y - top >= static_cast<uint32_t>(gif_->Image.Height)) return Status::Ok();
  const uint8_t* indices = line_.data();
  if (gif_->Image.Interlace) {
    indices = &frame_[(y - top) * line_.size()];
  } else if (DGifGetLine(gif_.get(), line_.data(), gif_->Image.Width) == GIF_ERROR) {
    return Failed();
  }
  for (size_t x = 0; x < line_.size(); ++x) {
    std::memcpy(&rgba[4 * (left + x)], palette_[indices[x]].data(), 4);
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<ImageSource>> OpenGif(std::span<const std::byte> media,
                                             const MediaOptions& options, uint64_t max_pixels) {
  auto source = std::make_unique<GifSource>(options);
  EMBERCACHE_RETURN_IF_ERROR(source->Open(media, max_pixels));
  return std::unique_ptr<ImageSource>(std::move(source));
}

}  // namespace embercache
