#include "src/server/recent_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace embercache {
namespace {

using testing::ElementsAre;

std::vector<std::string> MessagesOf(const RecentErrors& errors) {
  std::vector<std::string> messages;
  for (const RecentErrors::Entry& entry : errors.Get()) messages.push_back(entry.message);
  return messages;
}

TEST(RecentErrorsTest, TheNewestComesFirst) {
  RecentErrors errors;
  errors.Add("a", Status::Invalid("first"));
  errors.Add("b", Status::Invalid("second"));
  EXPECT_THAT(MessagesOf(errors), ElementsAre("second", "first"));
}

TEST(RecentErrorsTest, TroubleIsOneEntryAKindThatTellsTheLastOfIt) {
  RecentErrors errors;
  errors.AddTrouble("gets", "gets failed: 1");
  errors.AddTrouble("puts", "puts failed: 2");
  errors.Add("a", Status::Invalid("bad"));
  errors.AddTrouble("gets", "gets failed: 3");
  EXPECT_THAT(MessagesOf(errors), ElementsAre("gets failed: 3", "bad", "puts failed: 2"));
  EXPECT_EQ(errors.Get().front().code, StatusCode::kUnavailable);
  EXPECT_EQ(errors.Get().front().request_id, "");
}

TEST(RecentErrorsTest, NoMoreThanTwentyAreKept) {
  RecentErrors errors;
  for (int i = 0; i < 30; ++i) errors.Add(std::to_string(i), Status::Invalid("bad"));
  EXPECT_EQ(errors.Get().size(), 20U);
  EXPECT_EQ(errors.Get().front().request_id, "29");
}

}  // namespace
}  // namespace embercache
