// Pixels, tensors and embeddings against what Pillow, numpy and Python's onnxruntime made of the
// same files: tests/golden/encode/make_golden.py.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "embercache/digest.h"
#include "embercache/encoder.h"
#include "src/encode/preprocess.h"
#include "tests/unit/encode/test_media.h"

namespace embercache {
namespace {

using Json = nlohmann::json;

const Json& Golden() {
  static const Json golden = Json::parse(ReadFile(EMBERCACHE_GOLDEN_DIR "/golden.json"));
  return golden;
}

MediaOptions OptionsOf(const Json& golden_case) {
  const auto options = ParseMediaOptions(golden_case.value("options", Json::object()).dump());
  EXPECT_TRUE(options.ok()) << options.status().ToString();
  return *options;
}

PreprocessSettings SettingsOf(const std::string& name) {
  for (const Json& config : Golden()["configs"]) {
    if (!config.contains(name)) continue;
    const auto settings = ParsePreprocessorConfig(config[name].dump());
    EXPECT_TRUE(settings.ok()) << settings.status().ToString();
    return *settings;
  }
  ADD_FAILURE() << "no configuration " << name;
  return {};
}

TEST(GoldenTest, DecodedPixelsEqualPillows) {
  ASSERT_GT(Golden()["pixels"].size(), 40u);
  for (const Json& golden : Golden()["pixels"]) {
    const std::string media = golden["media"];
    const std::string bytes = GoldenMedia(media);
    const auto picture = Decode(AsBytes(bytes));
    ASSERT_TRUE(picture.ok()) << media << ": " << picture.status().ToString();
    EXPECT_EQ(picture->width, golden["width"].get<uint32_t>()) << media;
    EXPECT_EQ(picture->height, golden["height"].get<uint32_t>()) << media;
    EXPECT_EQ(Sha256Of(std::string_view(picture->rgb)).ToHex(), golden["sha256"].get<std::string>())
        << media;
  }
}

TEST(GoldenTest, TensorsEqualThoseOfPillowAndNumpy) {
  ASSERT_GT(Golden()["tensors"].size(), 90u);
  for (const Json& golden : Golden()["tensors"]) {
    const std::string name = golden["media"].get<std::string>() + " " +
                             golden["config"].get<std::string>() + " " + golden["options"].dump();
    const std::string bytes = GoldenMedia(golden["media"]);
    const auto source = OpenImage(AsBytes(bytes), OptionsOf(golden), 1'000'000);
    ASSERT_TRUE(source.ok()) << name << ": " << source.status().ToString();
    const DType dtype = golden.value("dtype", "F32") == "F16" ? DType::kF16 : DType::kF32;
    const Preprocessor preprocessor(SettingsOf(golden["config"]), dtype);
    PreparedItem item;
    const Status status = preprocessor.Run(**source, item);
    ASSERT_TRUE(status.ok()) << name << ": " << status.ToString();
    EXPECT_EQ(Json(item.shape), golden["shape"]) << name;
    EXPECT_EQ(Sha256Of({item.data.get(), item.size_bytes}).ToHex(),
              golden["sha256"].get<std::string>())
        << name << ", which begins with " << golden["first"];
  }
}

// A model's last bits depend on the processor, so its output is compared by value.
TEST(GoldenTest, EmbeddingsAreThoseOfPythonsOnnxRuntime) {
  auto encoder = LoadOnnxEncoder(EMBERCACHE_SMALL_MODEL, {});
  ASSERT_TRUE(encoder.ok()) << encoder.status().ToString();
  float largest = 0;
  for (const Json& golden : Golden()["embeddings"]) {
    const std::string bytes = GoldenMedia(golden["media"]);
    const auto item = (*encoder)->Prepare(AsBytes(bytes), {});
    ASSERT_TRUE(item.ok()) << item.status().ToString();
    const PreparedItem* items[] = {item->get()};
    EncodedItem out;
    const Status status = (*encoder)->Encode(items, {&out, 1});
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_EQ(out.tokens, golden["tokens"].get<uint32_t>());
    ASSERT_EQ(out.hidden, golden["hidden"].get<uint32_t>());
    ASSERT_EQ(out.dtype, DType::kF32);
    const std::span values(reinterpret_cast<const float*>(out.bytes.data()), out.bytes.size() / 4);
    size_t at = 0;
    for (const Json& expected : golden["values"]) {
      largest = std::max(largest, std::abs(values[at] - expected.get<float>()));
      at += golden["every"].get<size_t>();
    }
  }
  RecordProperty("largest_difference", std::to_string(largest));
  EXPECT_LT(largest, 1e-3f);
}

// Fails where the preprocessing or its settings text changed without a new version.
TEST(GoldenTest, FingerprintOfTheDemoSettingsIsStable) {
  EXPECT_EQ(SettingsOf("demo").Canonical(),
            "preprocess_version=1\n"
            "resize=448x448 filter 3\n"
            "rescale=0.00392156862745098\n"
            "mean=0.485 0.456 0.406\n"
            "std=0.229 0.224 0.225\n");
}

}  // namespace
}  // namespace embercache
