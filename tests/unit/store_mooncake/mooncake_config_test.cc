#include "src/store/mooncake/mooncake_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/conformance/temp_folder.h"

namespace embercache::mooncake {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class MooncakeConfigTest : public testing::Test {
 protected:
  ~MooncakeConfigTest() override {
    for (const std::string& name : set_) unsetenv(name.c_str());
  }
  void SetVariable(const char* name, const std::string& value) {
    setenv(name, value.c_str(), 1);
    set_.emplace_back(name);
  }
  void WriteFile(const std::string& text) {
    const std::string path = folder_.path() + "/mooncake.json";
    std::ofstream(path) << text;
    SetVariable("MOONCAKE_CONFIG_PATH", path);
  }
  static std::string ErrorOf(const char* json) {
    return MooncakeConfig::Parse(json).status().ToString();
  }

  TempFolder folder_;
  std::vector<std::string> set_;
};

TEST_F(MooncakeConfigTest, TheDefaultsAreALocalMasterByTcp) {
  const auto config = MooncakeConfig::Parse("{}");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->master_server_address, "127.0.0.1:50051");
  EXPECT_EQ(config->protocol, "tcp");
  EXPECT_EQ(config->metadata_server, "P2PHANDSHAKE");
}

TEST_F(MooncakeConfigTest, OptionsWinOverVariablesAndTheseOverTheFile) {
  WriteFile(R"({"master_server_address":"file:1","protocol":"rdma","device_name":"mlx5_0",
                "tenant_id":"blue","local_buffer_size":"16MiB","global_segment_size":"4gb"})");
  SetVariable("MOONCAKE_MASTER", "variable:2");
  SetVariable("MOONCAKE_PROTOCOL", "efa");
  SetVariable("MOONCAKE_GLOBAL_SEGMENT_SIZE", "4gb");
  const auto config = MooncakeConfig::Parse(R"({"master_server_address":"option:3"})");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->master_server_address, "option:3");
  EXPECT_EQ(config->protocol, "efa");
  EXPECT_EQ(config->device_name, "mlx5_0");
  EXPECT_EQ(config->tenant_id, "blue");
  EXPECT_EQ(config->local_buffer_size, 16ULL << 20);
  // We own no segment, so its size says nothing.
  EXPECT_THAT(config->ignored,
              ElementsAre(HasSubstr("global_segment_size"), "MOONCAKE_GLOBAL_SEGMENT_SIZE"));
}

TEST_F(MooncakeConfigTest, TheSetUpGetsWhatIsInForce) {
  const auto config =
      MooncakeConfig::Parse(R"({"master_server_address":"m:3","device_name":"mlx5_1"})");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  const auto json = nlohmann::json::parse(config->SetUpJson());
  EXPECT_EQ(json["master_server_address"], "m:3");
  EXPECT_EQ(json["device_name"], "mlx5_1");
  EXPECT_EQ(json["local_buffer_size"], 64ULL << 20);
}

TEST_F(MooncakeConfigTest, WhatIsWrongIsNamed) {
  EXPECT_THAT(ErrorOf(R"({"protocol":"quic"})"), AllOf(HasSubstr("quic"), HasSubstr("tcp, rdma")));
  for (const char* master : {"here", "here:", ":1", "here:x", "here:70000", "here:0"}) {
    const std::string json = std::string(R"({"master_server_address":")") + master + R"("})";
    EXPECT_THAT(ErrorOf(json.c_str()), AllOf(HasSubstr("host:port"), HasSubstr(master)));
  }
  EXPECT_THAT(ErrorOf(R"({"global_segment_size":"4gb"})"), HasSubstr("global_segment_size"));
  EXPECT_THAT(ErrorOf(R"({"bridge_timeout":"10ms"})"), HasSubstr("bridge_timeout"));
}

TEST_F(MooncakeConfigTest, AFileThatCannotBeUsedIsNamed) {
  SetVariable("MOONCAKE_CONFIG_PATH", "/nowhere/mooncake.json");
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("/nowhere/mooncake.json"));
  WriteFile("[1]");
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("no JSON object"));
  WriteFile(R"({"protocol":5})");
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("'protocol'"));
  WriteFile(R"({"local_buffer_size":"much"})");
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("much"));
}

}  // namespace
}  // namespace embercache::mooncake
