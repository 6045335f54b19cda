#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/encode/preprocess.h"

namespace embercache {
namespace {

using ::testing::HasSubstr;

PreprocessSettings Parse(const std::string& json) {
  const auto settings = ParsePreprocessorConfig(json);
  EXPECT_TRUE(settings.ok()) << settings.status().ToString();
  return settings.ok() ? *settings : PreprocessSettings{};
}

std::string Refusal(const std::string& json) {
  const auto settings = ParsePreprocessorConfig(json);
  EXPECT_FALSE(settings.ok()) << json;
  if (settings.ok()) return "";
  EXPECT_EQ(settings.status().code(), StatusCode::kInvalid);
  return settings.status().message();
}

TEST(PreprocessorConfigTest, EachClassHasItsDefaults) {
  EXPECT_EQ(Parse(R"({"image_processor_type":"ViTImageProcessor"})").Canonical(),
            "preprocess_version=1\nresize=224x224 filter 2\nrescale=0.00392156862745098\n"
            "mean=0.5 0.5 0.5\nstd=0.5 0.5 0.5\n");
  const std::string clip =
      "preprocess_version=1\nresize=shortest_edge 224 filter 3\ncrop=224x224\n"
      "rescale=0.00392156862745098\nmean=0.48145466 0.4578275 0.40821073\n"
      "std=0.26862954 0.26130258 0.27577711\n";
  EXPECT_EQ(Parse(R"({"image_processor_type":"CLIPImageProcessor"})").Canonical(), clip);
  EXPECT_EQ(Parse(R"({"image_processor_type":"BitImageProcessor"})").Canonical(), clip);
  EXPECT_EQ(Parse(R"({"image_processor_type":"SiglipImageProcessor"})").Canonical(),
            "preprocess_version=1\nresize=224x224 filter 3\nrescale=0.00392156862745098\n"
            "mean=0.5 0.5 0.5\nstd=0.5 0.5 0.5\n");
}

TEST(PreprocessorConfigTest, OldAndFastNamesOfAClassMeanTheSame) {
  EXPECT_EQ(Parse(R"({"feature_extractor_type":"CLIPFeatureExtractor"})").Canonical(),
            Parse(R"({"image_processor_type":"CLIPImageProcessorFast"})").Canonical());
}

TEST(PreprocessorConfigTest, ABareSizeIsASquareOrTheShortestEdgeByClass) {
  EXPECT_EQ(Parse(R"({"image_processor_type":"ViTImageProcessor","size":384})").resize->size,
            (ImageSize{384, 384}));
  const auto clip =
      Parse(R"({"image_processor_type":"CLIPImageProcessor","size":336,"crop_size":336})");
  EXPECT_EQ(clip.resize->shortest_edge, 336);
  EXPECT_EQ(clip.centre_crop, (ImageSize{336, 336}));
}

TEST(PreprocessorConfigTest, StepsCanBeSwitchedOff) {
  const auto settings = Parse(R"({"image_processor_type":"BitImageProcessor","do_resize":false,
      "do_center_crop":false,"do_rescale":false,"do_normalize":false})");
  EXPECT_EQ(settings.Canonical(), "preprocess_version=1\n");
  EXPECT_EQ(settings.FixedSize(), std::nullopt);
}

TEST(PreprocessorConfigTest, WithoutAClassEverythingHasToBeSaid) {
  EXPECT_THAT(Refusal("{}"), HasSubstr("entry size is missing"));
  EXPECT_THAT(Refusal(R"({"size":224})"), HasSubstr("entry resample is missing"));
  EXPECT_THAT(Refusal(R"({"size":224,"resample":3})"), HasSubstr("entry image_mean is missing"));
  EXPECT_EQ(Parse(R"({"size":224,"resample":3,"image_mean":0.5,"image_std":[1,2,4]})").Canonical(),
            "preprocess_version=1\nresize=224x224 filter 3\nrescale=0.00392156862745098\n"
            "mean=0.5 0.5 0.5\nstd=1 2 4\n");
}

TEST(PreprocessorConfigTest, WhatIsNotSupportedIsNamed) {
  const std::string vit = R"({"image_processor_type":"ViTImageProcessor",)";
  EXPECT_THAT(Refusal(R"({"image_processor_type":"Qwen2VLImageProcessor"})"),
              HasSubstr("entry image_processor_type is \"Qwen2VLImageProcessor\"; supported are"));
  EXPECT_THAT(Refusal(vit + R"("resample":7})"), HasSubstr("entry resample is 7; supported are"));
  EXPECT_THAT(Refusal(vit + R"("size":{"longest_edge":512}})"),
              HasSubstr(R"(entry size is {"longest_edge":512}; supported are)"));
  EXPECT_THAT(Refusal(vit + R"("size":0})"), HasSubstr("entry size is 0"));
  EXPECT_THAT(Refusal(vit + R"("size":100000})"), HasSubstr("entry size is 100000"));
  EXPECT_THAT(Refusal(vit + R"("image_mean":[0.5,0.5]})"), HasSubstr("entry image_mean is"));
  EXPECT_THAT(Refusal(vit + R"("image_std":0})"), HasSubstr("entry image_std is 0"));
  EXPECT_THAT(Refusal(vit + R"("do_resize":1})"), HasSubstr("entry do_resize is 1"));
  EXPECT_THAT(Refusal(vit + R"("rescale_factor":"x"})"), HasSubstr("entry rescale_factor is"));
  EXPECT_THAT(Refusal(vit + R"("do_pad":true})"),
              HasSubstr("entry do_pad is true; it is not supported"));
  EXPECT_THAT(Refusal(vit + R"("do_center_crop":true})"), HasSubstr("entry do_center_crop"));
  EXPECT_THAT(Refusal(vit + R"("data_format":"channels_last"})"), HasSubstr("entry data_format"));
  EXPECT_THAT(Refusal("not json"), HasSubstr("not a JSON object"));
}

TEST(PreprocessorConfigTest, WhatIsOffOrWithoutEffectIsPassedOver) {
  EXPECT_EQ(Parse(R"({"image_processor_type":"ViTImageProcessor","do_pad":null,"crop_size":null,
      "do_center_crop":null,"do_reduce_labels":false,"do_convert_rgb":true,"device":null,
      "processor_class":"CLIPProcessor","data_format":"channels_first"})")
                .Canonical(),
            Parse(R"({"image_processor_type":"ViTImageProcessor"})").Canonical());
}

}  // namespace
}  // namespace embercache
