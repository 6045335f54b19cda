// What numpy and safetensors read from these files is tested in tests/integration.

#include "src/cli/tensor_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/conformance/temp_folder.h"

namespace embercache {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

class TensorFileTest : public testing::Test {
 protected:
  TensorFileTest() {
    tensor_.dtype = DType::kF16;
    tensor_.shape = {3, 2};
    tensor_.bytes = parts_;
    tensor_.metadata = {{"key", "k"}};
  }
  std::string In(const std::string& name) const { return folder_.path() + "/" + name; }

  const std::string text_ = "abcdefghijkl";
  const ConstBuffer bytes_ = std::as_bytes(std::span(text_));
  const std::vector<ConstBuffer> parts_ = {bytes_.first(5), bytes_.subspan(5)};
  TensorView tensor_;
  TempFolder folder_;
};

TEST_F(TensorFileTest, TheExtensionDecides) {
  EXPECT_EQ(*TensorFormatOf("a.npy"), TensorFormat::kNpy);
  EXPECT_EQ(*TensorFormatOf("b/a.safetensors"), TensorFormat::kSafetensors);
  EXPECT_THAT(TensorFormatOf("a.pt").status().message(), HasSubstr("'a.pt'"));
}

TEST_F(TensorFileTest, NpyHasAnAlignedHeadAndTheBytesInOrder) {
  ASSERT_TRUE(WriteTensorFile(In("a.npy"), TensorFormat::kNpy, tensor_).ok());
  const std::string content = Read(In("a.npy"));
  EXPECT_THAT(content, StartsWith(std::string("\x93NUMPY\x01\x00", 8)));
  EXPECT_THAT(content, HasSubstr("'descr': '<f2'"));
  EXPECT_THAT(content, HasSubstr("'shape': (3, 2, )"));
  EXPECT_THAT(content, EndsWith("\n" + text_));
  EXPECT_EQ((content.size() - text_.size()) % 64, 0U);
}

TEST_F(TensorFileTest, SafetensorsHasTheTensorAndTheTexts) {
  ASSERT_TRUE(WriteTensorFile(In("a.safetensors"), TensorFormat::kSafetensors, tensor_).ok());
  const std::string content = Read(In("a.safetensors"));
  EXPECT_THAT(content,
              HasSubstr(R"("embedding":{"dtype":"F16","shape":[3,2],"data_offsets":[0,12]})"));
  EXPECT_THAT(content, HasSubstr(R"("__metadata__":{"key":"k"})"));
  EXPECT_THAT(content, EndsWith(text_));
}

TEST_F(TensorFileTest, ADTypeThatNumpyLacksIsRefusedAndLeavesNoFile) {
  tensor_.dtype = DType::kBF16;
  const Status status = WriteTensorFile(In("a.npy"), TensorFormat::kNpy, tensor_);
  EXPECT_EQ(status.code(), StatusCode::kInvalid);
  EXPECT_THAT(status.message(), HasSubstr("BF16"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  EXPECT_TRUE(WriteTensorFile(In("a.safetensors"), TensorFormat::kSafetensors, tensor_).ok());
}

TEST_F(TensorFileTest, APlaceThatCannotBeWrittenIsNamed) {
  const Status status = WriteTensorFile(In("none/a.npy"), TensorFormat::kNpy, tensor_);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("none/a.npy"));
  std::filesystem::create_directory(In("a.npy"));
  EXPECT_FALSE(WriteTensorFile(In("a.npy"), TensorFormat::kNpy, tensor_).ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1);
}

}  // namespace
}  // namespace embercache
