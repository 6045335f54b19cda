#include "src/cli/media_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/conformance/temp_folder.h"

namespace embercache {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class MediaFilesTest : public testing::Test {
 protected:
  std::string Make(const std::string& name) {
    const std::filesystem::path path = std::filesystem::path(folder_.path()) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << "content";
    return path.string();
  }
  std::string In(const std::string& name) const { return folder_.path() + "/" + name; }

  static std::vector<std::string> Names(const std::vector<std::string>& words) {
    std::vector<std::string> names;
    const auto files = FindMediaFiles(words);
    EXPECT_TRUE(files.ok()) << files.status().ToString();
    if (files.ok()) {
      for (const MediaFile& file : *files) names.push_back(file.name);
    }
    return names;
  }

  TempFolder folder_;
};

TEST_F(MediaFilesTest, AFileIsTakenWhateverItsNameIs) {
  EXPECT_THAT(Names({Make("b.dat"), Make("a.jpg")}), ElementsAre("b.dat", "a.jpg"));
}

TEST_F(MediaFilesTest, AFolderGivesItsImagesSortedWithTheirWay) {
  for (const char* name : {"z.png", "sub/a.JPEG", "sub/b.txt", "a.webp", ".hidden", "c.gif"}) {
    Make(name);
  }
  EXPECT_THAT(Names({folder_.path()}), ElementsAre("a.webp", "c.gif", "sub/a.JPEG", "z.png"));
  EXPECT_THAT(Names({folder_.path() + "/"}), ElementsAre("a.webp", "c.gif", "sub/a.JPEG", "z.png"));
}

TEST_F(MediaFilesTest, APatternGivesItsMatches) {
  for (const char* name : {"b.png", "a.png", "c.jpg", "sub/d.png"}) Make(name);
  EXPECT_THAT(Names({In("*.png")}), ElementsAre("a.png", "b.png"));
  EXPECT_THAT(Names({In("s*")}), ElementsAre("d.png"));
}

TEST_F(MediaFilesTest, AFileNamedLikeAPatternIsThatFile) {
  Make("a.png");
  EXPECT_THAT(Names({Make("[a].png")}), ElementsAre("[a].png"));
}

TEST_F(MediaFilesTest, WhatIsNotThereIsNamed) {
  std::filesystem::create_directory(In("empty"));
  for (const std::string& word : {In("none.jpg"), In("*.tiff"), In("empty")}) {
    const Status status = FindMediaFiles({word}).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_THAT(status.message(), HasSubstr("'" + word + "'"));
  }
}

TEST_F(MediaFilesTest, OneFileMayNameItsOutput) {
  const std::vector<MediaFile> one = {{"x/a.jpg", "a.jpg"}};
  EXPECT_THAT(*OutputPaths(one, "o.npy", ".safetensors"), ElementsAre("o.npy"));
  EXPECT_THAT(*OutputPaths(one, "out", ".safetensors"), ElementsAre("out/a.jpg.safetensors"));
}

TEST_F(MediaFilesTest, AnOutputNamedLikeAnotherKindOfFileIsNoFolderUnlessThatIsMeant) {
  const std::vector<MediaFile> one = {{"x/a.jpg", "a.jpg"}};
  const Status refused = OutputPaths(one, In("x.txt"), ".npy").status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalid);
  EXPECT_THAT(refused.message(), HasSubstr("'" + In("x.txt") + "/'"));
  EXPECT_THAT(*OutputPaths(one, In("x.txt/"), ".npy"), ElementsAre(In("x.txt/a.jpg.npy")));
  EXPECT_THAT(*OutputPaths(one, In(".hidden"), ".npy"), ElementsAre(In(".hidden/a.jpg.npy")));
  std::filesystem::create_directory(In("y.txt"));
  EXPECT_THAT(*OutputPaths(one, In("y.txt"), ".npy"), ElementsAre(In("y.txt/a.jpg.npy")));
}

TEST_F(MediaFilesTest, SeveralGoToAFolderAndNeverOverEachOther) {
  const std::vector<MediaFile> two = {{"x/a.jpg", "a.jpg"}, {"x/s/a.jpg", "s/a.jpg"}};
  EXPECT_THAT(*OutputPaths(two, "out", ".npy"), ElementsAre("out/a.jpg.npy", "out/s/a.jpg.npy"));
  EXPECT_EQ(OutputPaths(two, "o.npy", ".npy").status().code(), StatusCode::kInvalid);
  const std::vector<MediaFile> same = {{"x/a.jpg", "a.jpg"}, {"y/a.jpg", "a.jpg"}};
  EXPECT_THAT(OutputPaths(same, "out", ".npy").status().message(),
              testing::AllOf(HasSubstr("x/a.jpg"), HasSubstr("y/a.jpg")));
}

}  // namespace
}  // namespace embercache
