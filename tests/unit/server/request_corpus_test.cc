// What the fuzzer of request bodies has kept, in every build.

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace embercache {
namespace {

TEST(RequestCorpusTest, EveryKeptBodyIsReadOrRefused) {
  size_t inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(REQUEST_CORPUS_DIR)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string body(std::istreambuf_iterator<char>(file), {});
    EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(body.data()), body.size()),
              0);
    ++inputs;
  }
  EXPECT_GT(inputs, 10U);
}

}  // namespace
}  // namespace embercache
