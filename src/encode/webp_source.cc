// WebP through libwebp: a still picture, or the first frame of an animation on its canvas.
//
// libwebp decodes a frame as a whole, so all of it is in memory: 4 bytes a pixel.

#include <fmt/format.h>
#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "src/encode/image_source.h"

namespace embercache {
namespace {

struct DemuxerDelete {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};
using Demuxer = std::unique_ptr<WebPDemuxer, DemuxerDelete>;

class WebpSource : public ImageSource {
 public:
  explicit WebpSource(const MediaOptions& options) : ImageSource(options) {}

  Status Open(std::span<const std::byte> media, uint64_t max_pixels);

 protected:
  Status DecodeRow(std::span<uint8_t> rgba) override;

 private:
  Status DecodeFrame(const WebPIterator& frame);

  std::vector<uint8_t> frame_;  // RGBA
  uint32_t frame_x_ = 0;
  uint32_t frame_y_ = 0;
  uint32_t frame_width_ = 0;
  uint32_t frame_height_ = 0;
  uint32_t next_row_ = 0;
};

Status Broken(std::string_view why) {
  return Status::Invalid(fmt::format("broken webp: {}", why));
}

std::string_view Reason(VP8StatusCode code) {
  switch (code) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return "out of memory";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "unsupported feature";
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA:
      return "the data ends early";
    default:
      return "malformed data";
  }
}

Orientation StoredOrientation(const WebPDemuxer* demuxer) {
  WebPChunkIterator chunk;
  Orientation orientation = Orientation::kNone;
  if (WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk)) {
    const auto* bytes = reinterpret_cast<const std::byte*>(chunk.chunk.bytes);
    orientation = ExifOrientation({bytes, chunk.chunk.size});
  }
  WebPDemuxReleaseChunkIterator(&chunk);
  return orientation;
}

Status WebpSource::Open(std::span<const std::byte> media, uint64_t max_pixels) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(media.data());
  WebPBitstreamFeatures features;
  const VP8StatusCode code = WebPGetFeatures(bytes, media.size(), &features);
  if (code != VP8_STATUS_OK) return Broken(Reason(code));
  EMBERCACHE_RETURN_IF_ERROR(CheckImageSize(static_cast<uint64_t>(features.width),
                                            static_cast<uint64_t>(features.height), max_pixels));
  has_alpha_ = features.has_alpha != 0;
  const WebPData data{bytes, media.size()};
  const Demuxer demuxer(WebPDemux(&data));
  if (!demuxer) return Broken("the data ends early, or is malformed");
  width_ = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH);
  height_ = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT);
  EMBERCACHE_RETURN_IF_ERROR(CheckImageSize(width_, height_, max_pixels));
  if (options_.apply_exif_orientation) orientation_ = StoredOrientation(demuxer.get());
  WebPIterator frame;
  const bool found = WebPDemuxGetFrame(demuxer.get(), 1, &frame) != 0;
  Status status = found ? DecodeFrame(frame) : Broken("it has no picture");
  WebPDemuxReleaseIterator(&frame);
  return status;
}

Status WebpSource::DecodeFrame(const WebPIterator& frame) {
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) return Status::Internal("libwebp is of another version");
  VP8StatusCode code = WebPGetFeatures(frame.fragment.bytes, frame.fragment.size, &config.input);
  if (code != VP8_STATUS_OK) return Broken(Reason(code));
  if (config.input.width != frame.width || config.input.height != frame.height) {
    return Broken("a frame has another size than it says");
  }
  frame_x_ = static_cast<uint32_t>(frame.x_offset);
  frame_y_ = static_cast<uint32_t>(frame.y_offset);
  frame_width_ = static_cast<uint32_t>(frame.width);
  frame_height_ = static_cast<uint32_t>(frame.height);
  if (uint64_t{frame_x_} + frame_width_ > width_ || uint64_t{frame_y_} + frame_height_ > height_) {
    return Broken("a frame does not lie on the canvas");
  }
  frame_.resize(size_t{4} * frame_width_ * frame_height_);
  config.output.colorspace = MODE_RGBA;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = frame_.data();
  config.output.u.RGBA.stride = frame.width * 4;
  config.output.u.RGBA.size = frame_.size();
  code = WebPDecode(frame.fragment.bytes, frame.fragment.size, &config);
  WebPFreeDecBuffer(&config.output);
  return code == VP8_STATUS_OK ? Status::Ok() : Broken(Reason(code));
}

Status WebpSource::DecodeRow(std::span<uint8_t> rgba) {
  const uint32_t y = next_row_++;
  const bool whole = frame_width_ == width_;
  // What the frame does not cover is transparent.
  if (!whole || y < frame_y_ || y - frame_y_ >= frame_height_) {
    std::fill(rgba.begin(), rgba.end(), uint8_t{0});
  }
  if (y >= frame_y_ && y - frame_y_ < frame_height_) {
    const size_t row_bytes = size_t{4} * frame_width_;
    std::memcpy(rgba.data() + size_t{4} * frame_x_, frame_.data() + (y - frame_y_) * row_bytes,
                row_bytes);
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<ImageSource>> OpenWebp(std::span<const std::byte> media,
                                              const MediaOptions& options, uint64_t max_pixels) {
  auto source = std::make_unique<WebpSource>(options);
  EMBERCACHE_RETURN_IF_ERROR(source->Open(media, max_pixels));
  return std::unique_ptr<ImageSource>(std::move(source));
}

}  // namespace embercache
