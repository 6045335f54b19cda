#include "src/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace embercache {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class LogTest : public testing::Test {
 protected:
  ~LogTest() override {
    (void)SetLogLevel("info");
    (void)SetLogFormat("text");
  }
};

TEST_F(LogTest, WhatWasSetIsTold) {
  EXPECT_EQ(LogLevel(), "info");
  EXPECT_EQ(LogFormat(), "text");
  ASSERT_TRUE(SetLogLevel("warning").ok());
  ASSERT_TRUE(SetLogFormat("json").ok());
  EXPECT_EQ(LogLevel(), "warning");
  EXPECT_EQ(LogFormat(), "json");
  EXPECT_THAT(SetLogLevel("loud").message(), HasSubstr("debug, info, warning, error"));
  EXPECT_EQ(LogLevel(), "warning");
}

TEST_F(LogTest, ATapHearsWarningsAndErrorsAtEveryLevelAndNothingElse) {
  for (const char* level : {"debug", "error"}) {
    ASSERT_TRUE(SetLogLevel(level).ok());
    std::vector<std::string> heard;
    {
      const LogTap tap([&](std::string_view, std::string_view text) { heard.emplace_back(text); });
      EXPECT_EQ(LogLevel(), level);
      LOG_INFO("info {}", 1);
      LOG_WARNING("warning {}", 2);
      LOG_ERROR("error {}", 3);
    }
    LOG_WARNING("after it");
    EXPECT_THAT(heard, ElementsAre("warning 2", "error 3"));
  }
}

TEST_F(LogTest, ATapIsToldTheLineOfTheSourceThatLogs) {
  std::vector<std::string> places;
  const LogTap tap([&](std::string_view place, std::string_view) { places.emplace_back(place); });
  for (int i = 0; i < 2; ++i) LOG_WARNING("one kind {}", i);
  LOG_WARNING("another");
  ASSERT_EQ(places.size(), 3U);
  EXPECT_EQ(places[0], places[1]);
  EXPECT_NE(places[0], places[2]);
  EXPECT_THAT(places[0], HasSubstr("tests/unit/base/log_test.cc:"));
}

}  // namespace
}  // namespace embercache
