// The inputs that the fuzzer of the RESP parser has kept, in every build.

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

TEST(RespCorpusTest, EveryKeptInputIsParsedTheSameHoweverItIsCut) {
  size_t inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(RESP_CORPUS_DIR)) {
    SCOPED_TRACE(entry.path());
    std::ifstream file(entry.path(), std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()),
              0);
    ++inputs;
  }
  EXPECT_GT(inputs, 20U);
}
