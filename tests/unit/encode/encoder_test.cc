// LoadOnnxEncoder and the encoders it makes, on the toy models of
// tests/golden/encode/make_models.py.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "embercache/encoder.h"
#include "tests/unit/encode/test_media.h"

namespace embercache {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string Model(const std::string& name) {
  return std::string(EMBERCACHE_GOLDEN_DIR) + "/models/" + name;
}

std::unique_ptr<Encoder> Load(const std::string& name, const EncoderOptions& options = {}) {
  auto encoder = LoadOnnxEncoder(Model(name), options);
  EXPECT_TRUE(encoder.ok()) << encoder.status().ToString();
  return encoder.ok() ? *std::move(encoder) : nullptr;
}

std::unique_ptr<PreparedItem> Prepare(const Encoder& encoder, const std::string& media) {
  auto item = encoder.Prepare(AsBytes(media), {});
  EXPECT_TRUE(item.ok()) << item.status().ToString();
  return item.ok() ? *std::move(item) : nullptr;
}

EncodedItem EncodeOne(const Encoder& encoder, const std::string& media) {
  const auto item = Prepare(encoder, media);
  const PreparedItem* items[] = {item.get()};
  EncodedItem out;
  const Status status = encoder.Encode(items, {&out, 1});
  EXPECT_TRUE(status.ok()) << status.ToString();
  return out;
}

std::string BytesOf(const EncodedItem& item) {
  return {reinterpret_cast<const char*>(item.bytes.data()), item.bytes.size()};
}

class ModelFolderTest : public ::testing::Test {
 protected:
  ModelFolderTest() : dir_(fs::temp_directory_path() / ("embercache_" + std::to_string(getpid()))) {
    fs::remove_all(dir_);
    fs::copy(Model("toy"), dir_);
  }
  ~ModelFolderTest() override { fs::remove_all(dir_); }

  Status Refusal() const {
    const auto encoder = LoadOnnxEncoder(dir_.string(), {});
    EXPECT_FALSE(encoder.ok());
    return encoder.status();
  }
  void Write(const std::string& name, const std::string& text) const {
    fs::create_directories((dir_ / name).parent_path());
    std::ofstream(dir_ / name, std::ios::binary) << text;
  }

  const fs::path dir_;
};

TEST_F(ModelFolderTest, AFolderThatIsNotThereIsNotFound) {
  fs::remove_all(dir_);
  EXPECT_EQ(Refusal().code(), StatusCode::kNotFound);
  EXPECT_THAT(Refusal().message(), HasSubstr(dir_.string()));
}

TEST_F(ModelFolderTest, AMissingModelIsNotFound) {
  fs::remove(dir_ / "model.onnx");
  EXPECT_EQ(Refusal().code(), StatusCode::kNotFound);
  EXPECT_THAT(Refusal().message(), HasSubstr("no model.onnx, and no other *.onnx"));
}

TEST_F(ModelFolderTest, AMissingPreprocessorConfigIsNotFound) {
  fs::remove(dir_ / "preprocessor_config.json");
  EXPECT_EQ(Refusal().code(), StatusCode::kNotFound);
  EXPECT_THAT(Refusal().message(), HasSubstr("preprocessor_config.json is not there"));
}

TEST_F(ModelFolderTest, AWrongPreprocessorEntryIsInvalidAndNamesTheFile) {
  Write("preprocessor_config.json", R"({"image_processor_type":"ViTImageProcessor","resample":9})");
  EXPECT_EQ(Refusal().code(), StatusCode::kInvalid);
  EXPECT_THAT(Refusal().message(), HasSubstr("preprocessor_config.json: entry resample is 9"));
}

TEST_F(ModelFolderTest, TheOnlyModelIsTakenWhateverItsName) {
  fs::create_directory(dir_ / "onnx");
  fs::rename(dir_ / "model.onnx", dir_ / "onnx" / "vision.onnx");
  EXPECT_TRUE(LoadOnnxEncoder(dir_.string(), {}).ok());
}

TEST_F(ModelFolderTest, OfSeveralModelsOneHasToBeChosen) {
  fs::create_directory(dir_ / "onnx");
  fs::copy(dir_ / "model.onnx", dir_ / "onnx" / "b.onnx");
  fs::rename(dir_ / "model.onnx", dir_ / "a.onnx");
  EXPECT_EQ(Refusal().code(), StatusCode::kInvalid);
  EXPECT_THAT(Refusal().message(), HasSubstr("a.onnx"));
  EXPECT_THAT(Refusal().message(), HasSubstr("b.onnx"));
  EXPECT_THAT(Refusal().message(), HasSubstr("embercache.toml"));
  Write("embercache.toml", "model = \"onnx/b.onnx\"\n");
  EXPECT_TRUE(LoadOnnxEncoder(dir_.string(), {}).ok());
}

TEST_F(ModelFolderTest, WrongTomlIsRefusedByNameAndLine) {
  Write("embercache.toml", "modle = \"x\"\n");
  EXPECT_THAT(Refusal().message(), HasSubstr("unknown entry modle; known are model, output"));
  Write("embercache.toml", "model = 7\n");
  EXPECT_THAT(Refusal().message(), HasSubstr("entry model has to be a string"));
  Write("embercache.toml", "\nmodel = \n");
  EXPECT_THAT(Refusal().message(), HasSubstr("embercache.toml: line 2"));
  Write("embercache.toml", "model = \"other.onnx\"\n");
  EXPECT_EQ(Refusal().code(), StatusCode::kNotFound);
}

TEST_F(ModelFolderTest, AFileThatIsNoModelIsInvalid) {
  Write("model.onnx", "this is not a model");
  EXPECT_EQ(Refusal().code(), StatusCode::kInvalid);
  EXPECT_THAT(Refusal().message(), HasSubstr("model.onnx"));
}

TEST_F(ModelFolderTest, AnotherWeightIsAnotherDigest) {
  const auto before = Load("toy")->info().weights_digest;
  EXPECT_EQ(before, Sha256Of(AsBytes(ReadFile(Model("toy") + "/model.onnx"))));
  std::string model = ReadFile((dir_ / "model.onnx").string());
  const float weight = -11.0f / 16;
  const size_t at = model.find(std::string(reinterpret_cast<const char*>(&weight), 4));
  ASSERT_NE(at, std::string::npos);
  model[at] ^= 1;
  Write("model.onnx", model);
  EXPECT_NE((*LoadOnnxEncoder(dir_.string(), {}))->info().weights_digest, before);
}

TEST_F(ModelFolderTest, ExternalDataBelongsToTheDigest) {
  fs::remove_all(dir_);
  fs::copy(Model("external"), dir_);
  const auto before = (*LoadOnnxEncoder(dir_.string(), {}))->info().weights_digest;
  std::string weights = ReadFile((dir_ / "weights.bin").string());
  weights[0] ^= 1;
  Write("weights.bin", weights);
  EXPECT_NE((*LoadOnnxEncoder(dir_.string(), {}))->info().weights_digest, before);
  fs::remove(dir_ / "weights.bin");
  EXPECT_EQ(Refusal().code(), StatusCode::kNotFound);
  EXPECT_THAT(Refusal().message(), HasSubstr("data file weights.bin, which is not there"));
}

TEST(OnnxEncoderTest, InfoSaysWhatTheModelGives) {
  const auto encoder = Load("toy");
  const EncoderInfo& info = encoder->info();
  EXPECT_EQ(info.model_id, "toy");
  EXPECT_EQ(info.dtype, DType::kF32);
  EXPECT_EQ(info.hidden, 8u);
  EXPECT_EQ(info.modality, Modality::kImage);
  EXPECT_EQ(info.fixed_tokens, 6u);  // 48x32 pixels in patches of 16
  EXPECT_GT(info.max_batch, 1000u);
  EXPECT_THAT(info.preprocess_fingerprint, HasSubstr("preprocess_version=1\n"));
  EXPECT_THAT(info.preprocess_fingerprint, HasSubstr("output=last_hidden_state\n"));
  EXPECT_EQ(Load("toy", {.model_id = "mine"})->info().model_id, "mine");
}

TEST(OnnxEncoderTest, APreparedItemKnowsItsShapeAndItsPicture) {
  const auto encoder = Load("toy");
  const auto item = Prepare(*encoder, GoldenMedia("orientation_6.jpg"));
  EXPECT_THAT(item->shape, ::testing::ElementsAre(3, 32, 48));
  EXPECT_EQ(item->size_bytes, 3u * 32 * 48 * 4);
  EXPECT_EQ(item->expected_tokens, 6u);
  EXPECT_EQ(item->metadata_json, R"({"format":"jpeg","height":75,"width":50})");
}

TEST(OnnxEncoderTest, TheSameBytesAloneAndInABatch) {
  const auto encoder = Load("toy");
  const std::string names[] = {"rgb_420.jpg", "odd_size.jpg", "rgba_8.png"};
  std::vector<std::unique_ptr<PreparedItem>> prepared;
  std::vector<const PreparedItem*> items;
  for (const std::string& name : names) {
    prepared.push_back(Prepare(*encoder, GoldenMedia(name)));
    items.push_back(prepared.back().get());
  }
  std::vector<EncodedItem> out(3);
  ASSERT_TRUE(encoder->Encode(items, out).ok());
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(out[i].tokens, 6u);
    EXPECT_EQ(out[i].hidden, 8u);
    EXPECT_EQ(BytesOf(out[i]), BytesOf(EncodeOne(*encoder, GoldenMedia(names[i])))) << names[i];
  }
  EXPECT_NE(BytesOf(out[0]), BytesOf(out[1]));
}

TEST(OnnxEncoderTest, TheBytesOutliveTheEncoder) {
  auto encoder = Load("toy");
  const EncodedItem out = EncodeOne(*encoder, GoldenMedia("rgb_420.jpg"));
  const std::string before = BytesOf(out);
  encoder.reset();
  EXPECT_EQ(BytesOf(out), before);
}

TEST(OnnxEncoderTest, ItemsOfOtherShapesDoNotGoIntoOneBatch) {
  const auto encoder = Load("any_size");
  EXPECT_EQ(encoder->info().fixed_tokens, std::nullopt);
  const auto a = Prepare(*encoder, GoldenMedia("rgb_420.jpg"));
  const auto b = Prepare(*encoder, GoldenMedia("odd_size.jpg"));
  const PreparedItem* items[] = {a.get(), b.get()};
  std::vector<EncodedItem> out(2);
  EXPECT_EQ(encoder->Encode(items, out).code(), StatusCode::kInvalid);
  EXPECT_EQ(EncodeOne(*encoder, GoldenMedia("rgb_420.jpg")).tokens, 10u * 7);
  EXPECT_EQ(EncodeOne(*encoder, GoldenMedia("odd_size.jpg")).tokens, 6u * 3);
}

TEST(OnnxEncoderTest, LastHiddenStateIsTakenUnlessAnotherOutputIsChosen) {
  const auto two = Load("two_outputs");
  EXPECT_EQ(two->info().fixed_tokens, 6u);
  const auto chosen = Load("chosen_output");
  EXPECT_EQ(chosen->info().fixed_tokens, 1u);
  EXPECT_EQ(chosen->info().hidden, 8u);
  EXPECT_NE(two->info().preprocess_fingerprint, chosen->info().preprocess_fingerprint);
}

TEST(OnnxEncoderTest, AModelInFloat16KeepsItsType) {
  const auto encoder = Load("half");
  EXPECT_EQ(encoder->info().dtype, DType::kF16);
  const EncodedItem out = EncodeOne(*encoder, GoldenMedia("rgb_420.jpg"));
  EXPECT_EQ(out.dtype, DType::kF16);
  EXPECT_EQ(out.bytes.size(), 6u * 8 * 2);
}

TEST(OnnxEncoderTest, AModelOfFixedBatchTakesOneItemATime) {
  EXPECT_EQ(Load("fixed")->info().max_batch, 1u);
}

TEST(OnnxEncoderTest, AModelOfAnotherSizeThanItsPreprocessingIsInvalid) {
  const auto encoder = LoadOnnxEncoder(Model("fixed_other"), {});
  ASSERT_FALSE(encoder.ok());
  EXPECT_EQ(encoder.status().code(), StatusCode::kInvalid);
  EXPECT_THAT(encoder.status().message(),
              HasSubstr("the model takes 64x64 pixels, and preprocessing gives 48x32"));
}

TEST(OnnxEncoderTest, InputsThatAreNotUnderstoodAreNamed) {
  const auto encoder = LoadOnnxEncoder(Model("text_inputs"), {});
  ASSERT_FALSE(encoder.ok());
  EXPECT_EQ(encoder.status().code(), StatusCode::kInvalid);
  EXPECT_THAT(encoder.status().message(), HasSubstr("input_ids, attention_mask"));
}

TEST(OnnxEncoderTest, PrepareRefusesWhatItCannotDecode) {
  const auto encoder = Load("toy", {.max_pixels = 160 * 120});
  EXPECT_TRUE(encoder->Prepare(AsBytes(GoldenMedia("rgb_420.jpg")), {}).ok());
  const std::string broken = GoldenMedia("rgb_420.jpg").substr(0, 1000);
  EXPECT_EQ(encoder->Prepare(AsBytes(broken), {}).status().code(), StatusCode::kInvalid);
  const std::string pdf = "%PDF-1.4";
  EXPECT_EQ(encoder->Prepare(AsBytes(pdf), {}).status().code(), StatusCode::kUnimplemented);
  const auto small = Load("toy", {.max_pixels = 100});
  EXPECT_EQ(small->Prepare(AsBytes(GoldenMedia("rgb_420.jpg")), {}).status().code(),
            StatusCode::kResourceExhausted);
}

TEST(OnnxEncoderTest, ManyThreadsGetTheSameBytes) {
  const auto encoder = Load("toy");
  const std::string media = GoldenMedia("rgb_420.jpg");
  const std::string expected = BytesOf(EncodeOne(*encoder, media));
  std::vector<std::string> got(4);
  std::vector<std::thread> threads;
  for (std::string& bytes : got) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) bytes = BytesOf(EncodeOne(*encoder, media));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(got, ::testing::Each(expected));
}

TEST(OnnxEncoderTest, LoadingTellsWhatItDoes) {
  std::vector<std::string> stages;
  uint64_t read = 0;
  const auto encoder = LoadOnnxEncoder(Model("external"), {}, [&](const LoadProgress& progress) {
    if (stages.empty() || stages.back() != progress.stage) stages.emplace_back(progress.stage);
    if (progress.total != 0) read = progress.done;
  });
  ASSERT_TRUE(encoder.ok());
  EXPECT_THAT(stages,
              ::testing::ElementsAre("reading weights", "loading the model", "trying the model"));
  EXPECT_EQ(read, fs::file_size(Model("external") + "/model.onnx") + 96);
}

}  // namespace
}  // namespace embercache
