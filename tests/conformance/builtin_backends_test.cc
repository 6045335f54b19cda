#include <filesystem>
#include <memory>

#include "embercache/store_factory.h"
#include "src/store/faulty_store.h"
#include "tests/conformance/conformance_gtest.h"
#include "tests/conformance/temp_folder.h"

namespace embercache {
namespace {

Result<std::unique_ptr<EmbeddingStore>> Create(std::string_view backend, std::string json) {
  EmbeddingStoreFactory factory;
  RegisterBuiltinBackends(factory);
  StoreConfig config;
  config.json = std::move(json);
  return factory.CreateBackend(backend, config);
}

StoreUnderTest MakeMemory() {
  StoreUnderTest memory;
  memory.name = "memory";
  memory.open = [] { return Create("memory", R"({"max_bytes":"64MiB"})"); };
  memory.traits.max_object_bytes = 64ULL << 20;
  return memory;
}

StoreUnderTest MakeFile() {
  const auto folder = std::make_shared<TempFolder>();
  StoreUnderTest file;
  file.name = "file";
  file.open = [folder] { return Create("file", R"({"dir":")" + folder->path() + R"("})"); };
  file.traits.shared = true;
  file.leftovers = [folder] {
    std::string files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder->path())) {
      const std::string path = entry.path().string();
      if (path.ends_with(".emb") || path.ends_with(".tmp")) files += path + " ";
    }
    return files;
  };
  return file;
}

StoreUnderTest MakeFaulty() {
  StoreUnderTest faulty = MakeMemory();
  faulty.name = "faulty";
  faulty.open = [open = faulty.open]() -> Result<std::unique_ptr<EmbeddingStore>> {
    EMBERCACHE_ASSIGN_OR_RETURN(auto inner, open());
    return std::unique_ptr<EmbeddingStore>(std::make_unique<FaultyStore>(std::move(inner)));
  };
  return faulty;
}

INSTANTIATE_TEST_SUITE_P(Memory, StoreConformanceTest, ConformanceOf("memory", MakeMemory),
                         ConformanceTestName);
INSTANTIATE_TEST_SUITE_P(File, StoreConformanceTest, ConformanceOf("file", MakeFile),
                         ConformanceTestName);
INSTANTIATE_TEST_SUITE_P(Faulty, StoreConformanceTest, ConformanceOf("faulty", MakeFaulty),
                         ConformanceTestName);

}  // namespace
}  // namespace embercache
