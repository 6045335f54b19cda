#include "src/store/file/object_name.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "embercache/digest.h"

namespace embercache {
namespace {

const std::string kHex = "ab12" + std::string(60, '0');

TEST(ObjectNameTest, OurKeysKeepTheirDigits) {
  EXPECT_EQ(ObjectPath("emb_" + kHex), "ab/12/" + kHex + ".emb");
}

TEST(ObjectNameTest, OtherKeysAreHashed) {
  const std::string sha = Sha256Of("some key").ToHex();
  EXPECT_EQ(ObjectPath("some key"),
            sha.substr(0, 2) + "/" + sha.substr(2, 2) + "/x" + sha + ".emb");
}

TEST(ObjectNameTest, WhatOnlyLooksLikeOurKeysIsHashed) {
  std::string upper = "emb_" + kHex;
  upper[4] = 'A';
  std::set<std::string> paths;
  for (const std::string& key :
       {upper, "emb_" + kHex + "0", "emb_" + kHex.substr(1), kHex, "EMB_" + kHex,
        "emb_" + kHex + std::string(1, '\0'), std::string("emb_"), std::string("..")}) {
    const std::string path = ObjectPath(key);
    EXPECT_EQ(path.substr(5, 2), "/x") << key;
    EXPECT_TRUE(paths.insert(path).second) << key;
  }
}

TEST(ObjectNameTest, AnIdNamesTheFileThatItCameFrom) {
  for (const std::string& key : {"emb_" + kHex, std::string("some key")}) {
    const std::string path = ObjectPath(key);
    const auto id = ObjectId(path.substr(path.rfind('/') + 1));
    ASSERT_TRUE(id.has_value());
    EXPECT_EQ(ObjectPath(*id), path);
  }
  EXPECT_EQ(ObjectId(kHex + ".emb"), "emb_" + kHex);
}

TEST(ObjectNameTest, ForeignFilesHaveNoId) {
  for (const std::string& name :
       {std::string("README"), std::string(".emb"), kHex, kHex + ".tmp", kHex + ".emb.bak",
        "y" + kHex + ".emb", "xx" + kHex + ".emb", kHex.substr(1) + ".emb"}) {
    EXPECT_EQ(ObjectId(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace embercache
