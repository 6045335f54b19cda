#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "src/encode/image_source.h"

namespace embercache {

using OpenImageKind = Result<std::unique_ptr<ImageSource>> (*)(std::span<const std::byte> media,
                                                               const MediaOptions& options,
                                                               uint64_t max_pixels);

// Decodes `media`, whatever it is, with a decoder, under two sets of options. Aborts where the same
// bytes give different pixels, a picture is larger than allowed, or a failure has an odd code.
// Returns the number of the two decodings that succeeded.
int FuzzImage(OpenImageKind open, std::span<const std::byte> media);

}  // namespace embercache
