// What the decoders' fuzzers have kept, and the golden media, in every build.

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/fuzz/image_fuzz.h"
#include "tests/unit/encode/test_media.h"

namespace embercache {
namespace {

struct Outcome {
  size_t inputs = 0;
  int decoded = 0;
};

// Every file of a folder through one decoder.
Outcome DecodeFolder(OpenImageKind open, const std::string& folder) {
  Outcome outcome;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string media = ReadFile(entry.path().string());
    outcome.decoded += FuzzImage(open, AsBytes(media));
    ++outcome.inputs;
  }
  return outcome;
}

class ImageCorpusTest : public ::testing::TestWithParam<std::pair<const char*, OpenImageKind>> {};

TEST_P(ImageCorpusTest, EveryKeptInputIsDecodedOrRefused) {
  const Outcome outcome = DecodeFolder(
      GetParam().second, std::string(EMBERCACHE_FUZZ_DIR) + "/corpus/" + GetParam().first);
  EXPECT_GT(outcome.inputs, 10u);
}

// The decoders are chosen by content, yet each has to stand anything.
TEST_P(ImageCorpusTest, EveryGoldenMediaIsDecodedOrRefused) {
  const Outcome outcome =
      DecodeFolder(GetParam().second, std::string(EMBERCACHE_GOLDEN_DIR) + "/media");
  EXPECT_GT(outcome.inputs, 60u);
  EXPECT_GT(outcome.decoded, 10);
}

INSTANTIATE_TEST_SUITE_P(Decoders, ImageCorpusTest,
                         ::testing::Values(std::pair{"jpeg", &OpenJpeg}, std::pair{"png", &OpenPng},
                                           std::pair{"webp", &OpenWebp},
                                           std::pair{"gif", &OpenGif}),
                         [](const auto& decoder) { return std::string(decoder.param.first); });

}  // namespace
}  // namespace embercache
