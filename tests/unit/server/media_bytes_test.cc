#include "src/server/media_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace embercache {
namespace {

namespace fs = std::filesystem;

class MediaRootTest : public testing::Test {
 protected:
  MediaRootTest() {
    std::string name = (fs::temp_directory_path() / "media-root-XXXXXX").string();
    top_ = mkdtemp(name.data());
    fs::create_directories(top_ / "root/sub");
    Write("root/a.png", "picture");
    Write("root/sub/b.png", "other");
    Write("root2", "beside the root");
    Write("secret", "outside");
  }
  ~MediaRootTest() override { fs::remove_all(top_); }

  void Write(const std::string& path, const std::string& text) const {
    std::ofstream(top_ / path) << text;
  }

  std::string Read(const std::string& path, uint64_t max_bytes = 100) const {
    const auto root = MediaRoot::Open((top_ / "root").string());
    const auto bytes = root->Read(path, max_bytes);
    if (!bytes.ok()) return std::string(StatusCodeName(bytes.status().code()));
    return {reinterpret_cast<const char*>(bytes->data()), bytes->size()};
  }

  fs::path top_;
};

TEST_F(MediaRootTest, ReadsFilesInsideByRelativeAndAbsolutePath) {
  EXPECT_EQ(Read("a.png"), "picture");
  EXPECT_EQ(Read("sub/b.png"), "other");
  EXPECT_EQ(Read("sub/../a.png"), "picture");
  EXPECT_EQ(Read((top_ / "root/a.png").string()), "picture");
}

TEST_F(MediaRootTest, FollowsLinksThatStayInside) {
  fs::create_symlink("sub/b.png", top_ / "root/link");
  EXPECT_EQ(Read("link"), "other");
}

TEST_F(MediaRootTest, RefusesWhatLeadsOutside) {
  fs::create_symlink(top_ / "secret", top_ / "root/link");
  fs::create_directory_symlink(top_, top_ / "root/up");
  for (const std::string& path :
       {std::string("../secret"), std::string("link"), std::string("up/secret"),
        (top_ / "secret").string(), (top_ / "root2").string(), std::string("/etc/passwd")}) {
    EXPECT_EQ(Read(path), "INVALID") << path;
  }
}

TEST_F(MediaRootTest, RefusesWhatIsNoFileInTheSameWords) {
  mkfifo((top_ / "root/pipe").c_str(), 0600);
  const auto root = MediaRoot::Open((top_ / "root").string());
  const std::string outside = root->Read("../secret", 100).status().message();
  for (const std::string& path : {std::string(), std::string("sub"), std::string("pipe"),
                                  std::string("nothing"), std::string("a.png\0x", 7)}) {
    EXPECT_EQ(root->Read(path, 100).status().message(), outside) << path;
  }
}

TEST_F(MediaRootTest, RefusesLargeFilesAsOverALimit) {
  EXPECT_EQ(Read("a.png", 7), "picture");
  const auto status = MediaRoot::Open((top_ / "root").string())->Read("a.png", 6).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(status.retryable());
}

TEST_F(MediaRootTest, WithoutAFolderRefusesEverything) {
  EXPECT_EQ(MediaRoot().Read("a.png", 100).status().code(), StatusCode::kInvalid);
}

TEST_F(MediaRootTest, HasToBeAFolder) {
  EXPECT_EQ(MediaRoot::Open((top_ / "secret").string()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(MediaRoot::Open((top_ / "nothing").string()).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace embercache
