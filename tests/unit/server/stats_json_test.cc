#include "src/server/stats_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace embercache {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(StatsJsonTest, TheConfigurationTellsPortLogAndTheStoresOptions) {
  EncodeServerOptions options;
  options.port = 0;  // any that is free
  options.enable_global_cache = true;
  options.store = {"file", R"({"dir":"/store","max_bytes":"1GiB"})"};
  const auto json = nlohmann::json::parse(ConfigurationJson(options, 8123, {}));
  EXPECT_EQ(json.at("port"), 8123);
  EXPECT_EQ(json.at("log_level"), "info");
  EXPECT_EQ(json.at("log_format"), "text");
  EXPECT_EQ(json.at("namespace"), "");
  EXPECT_EQ(json.at("mm_global_cache_config"),
            nlohmann::json({{"dir", "/store"}, {"max_bytes", "1GiB"}}));
}

TEST(StatsJsonTest, TheConfigurationTellsNoPasswordAndNotWhatTheNamespaceIs) {
  EncodeServerOptions options;
  options.tenant_salt = "hunter1";
  options.enable_global_cache = true;
  options.store = {"redis", R"({"url":"redis://u:hunter2@host","password":"hunter3"})"};
  std::string text = ConfigurationJson(options, 8000, {});
  EXPECT_THAT(text, Not(HasSubstr("hunter")));
  EXPECT_THAT(text, HasSubstr("@host"));
  EXPECT_EQ(nlohmann::json::parse(text).at("namespace"), "***");
  options.store.config_json = R"({"password":"hunter3")";
  EXPECT_THAT(ConfigurationJson(options, 8000, {}), Not(HasSubstr("hunter")));
}

}  // namespace
}  // namespace embercache
