#include "src/encode/media_kind.h"

namespace embercache {
namespace {

struct Signature {
  size_t offset;
  std::string_view bytes;
  DetectedMedia media;
};

// string_view with its length, since signatures hold zero bytes.
template <size_t N>
constexpr std::string_view Bytes(const char (&text)[N]) {
  return std::string_view(text, N - 1);
}

constexpr Signature kSignatures[] = {
    {0, Bytes("\xff\xd8\xff"), {MediaKind::kJpeg, "jpeg"}},
    {0, Bytes("\x89PNG\r\n\x1a\n"), {MediaKind::kPng, "png"}},
    {8, Bytes("WEBP"), {MediaKind::kWebp, "webp"}},
    {0, Bytes("GIF87a"), {MediaKind::kGif, "gif"}},
    {0, Bytes("GIF89a"), {MediaKind::kGif, "gif"}},
    {0, Bytes("%PDF-"), {MediaKind::kNotServed, "pdf"}},
    {0, Bytes("BM"), {MediaKind::kNotServed, "bmp"}},
    {0, Bytes("II*\0"), {MediaKind::kNotServed, "tiff"}},
    {0, Bytes("MM\0*"), {MediaKind::kNotServed, "tiff"}},
    {0, Bytes("II+\0"), {MediaKind::kNotServed, "tiff"}},
    {0, Bytes("MM\0+"), {MediaKind::kNotServed, "tiff"}},
    {4, Bytes("ftypavif"), {MediaKind::kNotServed, "avif"}},
    {4, Bytes("ftypavis"), {MediaKind::kNotServed, "avif"}},
    {4, Bytes("ftyphei"), {MediaKind::kNotServed, "heif"}},
    {4, Bytes("ftyphev"), {MediaKind::kNotServed, "heif"}},
    {4, Bytes("ftypmif1"), {MediaKind::kNotServed, "heif"}},
    {4, Bytes("ftypmsf1"), {MediaKind::kNotServed, "heif"}},
    {4, Bytes("ftypM4A"), {MediaKind::kNotServed, "m4a audio"}},
    {4, Bytes("ftypqt"), {MediaKind::kNotServed, "quicktime video"}},
    {4, Bytes("ftyp"), {MediaKind::kNotServed, "mp4 video"}},
    {0, Bytes("\x1a\x45\xdf\xa3"), {MediaKind::kNotServed, "matroska video"}},
    {8, Bytes("AVI "), {MediaKind::kNotServed, "avi video"}},
    {8, Bytes("WAVE"), {MediaKind::kNotServed, "wav audio"}},
    {0, Bytes("OggS"), {MediaKind::kNotServed, "ogg audio"}},
    {0, Bytes("fLaC"), {MediaKind::kNotServed, "flac audio"}},
    {0, Bytes("ID3"), {MediaKind::kNotServed, "mp3 audio"}},
    {0, Bytes("\0\0\0\x0cJXL \r\n\x87\n"), {MediaKind::kNotServed, "jpeg xl"}},
    {0, Bytes("\xff\x0a"), {MediaKind::kNotServed, "jpeg xl"}},
    {0, Bytes("\0\0\0\x0cjP  \r\n\x87\n"), {MediaKind::kNotServed, "jpeg 2000"}},
    {0, Bytes("\xff\x4f\xff\x51"), {MediaKind::kNotServed, "jpeg 2000"}},
    {0, Bytes("\0\0\x01\0"), {MediaKind::kNotServed, "ico"}},
    {0, Bytes("8BPS"), {MediaKind::kNotServed, "psd"}},
    {0, Bytes("<svg"), {MediaKind::kNotServed, "svg"}},
    {0, Bytes("<?xml"), {MediaKind::kNotServed, "xml"}},
};

bool Matches(std::string_view text, const Signature& signature) {
  return text.size() >= signature.offset + signature.bytes.size() &&
         text.substr(signature.offset, signature.bytes.size()) == signature.bytes;
}

}  // namespace

DetectedMedia DetectMedia(std::span<const std::byte> media) {
  const std::string_view text(reinterpret_cast<const char*>(media.data()), media.size());
  for (const Signature& signature : kSignatures) {
    // The signatures at offset 8 are forms of RIFF.
    if (signature.offset == 8 && !text.starts_with("RIFF")) continue;
    if (Matches(text, signature)) return signature.media;
  }
  return {};
}

}  // namespace embercache
