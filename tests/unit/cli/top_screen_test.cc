#include "src/cli/top_screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace embercache {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

constexpr char kStats[] = R"({
  "version": "1.2", "uptime_s": 90, "items_admitted": 3, "configuration": {"queue_items": 96},
  "models": [{"name": "m", "modality": "image", "hidden": 8, "dtype": "F32", "namespace": "ab"}],
  "pools": [{"name": "vision", "page_bytes": 1024, "evicted": 7,
             "pages": {"total": 4, "ready": 1, "filling": 0, "quarantined": 0, "free": 3},
             "entries": {"ready": 1, "filling": 0, "pinned": 0}}],
  "store": {"backend": "redis", "state": "down", "detail": "refused"},
  "lanes": [{"name": "get", "breaker_open": true}, {"name": "put", "breaker_open": false}],
  "recent_errors": [{"unix_ms": 0, "code": "INVALID", "message": "bad\u001b[2J\u009b", "request_id": "r"}]
})";

std::string Metrics(int local, int computed) {
  return "# HELP embercache_items_total x\n"
         "embercache_items_total{modality=\"image\",source=\"local\"} " +
         std::to_string(local) +
         "\nembercache_items_total{modality=\"image\",source=\"computed\"} " +
         std::to_string(computed) +
         "\nembercache_items_total_created{source=\"local\"} 99\n"
         "embercache_encoder_saved_seconds_total 12.5\n"
         "embercache_published_total{result=\"already_present\"} 1e+06\n";
}

constexpr TimePoint At(int seconds) {
  return TimePoint(std::chrono::seconds(1000 + seconds));
}

TEST(SumOfTest, AddsTheSeriesThatHaveTheLabels) {
  const std::string metrics = Metrics(3, 4);
  EXPECT_EQ(SumOf(metrics, "embercache_items_total"), 7);
  EXPECT_EQ(SumOf(metrics, "embercache_items_total", {{"source", "local"}}), 3);
  EXPECT_EQ(SumOf(metrics, "embercache_items_total", {{"source", "global"}}), 0);
  EXPECT_EQ(SumOf(metrics, "embercache_encoder_saved_seconds_total"), 12.5);
  EXPECT_EQ(SumOf(metrics, "embercache_published_total"), 1e6);
  EXPECT_EQ(SumOf("", "x"), 0);
}

TEST(TopScreenTest, ShowsTheTrafficOfTheLastMinuteAndOfAllTime) {
  TopScreen screen;
  ASSERT_TRUE(screen.Add(At(0), kStats, Metrics(0, 100)).ok());
  ASSERT_TRUE(screen.Add(At(50), kStats, Metrics(20, 100)).ok());
  ASSERT_TRUE(screen.Add(At(100), kStats, Metrics(50, 110)).ok());
  const auto lines = screen.Lines(200);
  EXPECT_THAT(lines, Contains(HasSubstr("75.0 % in the last minute, 31.2 % since the start")));
  EXPECT_THAT(lines, Contains(HasSubstr("0.8 a second, 160 since the start")));
  EXPECT_THAT(lines, Contains(HasSubstr("3 of at most 96 items")));
  EXPECT_THAT(lines, Contains(HasSubstr("|#*|")));
}

TEST(TopScreenTest, ShowsMemoryStoreModelsAndErrors) {
  TopScreen screen;
  ASSERT_TRUE(screen.Add(At(0), kStats, Metrics(1, 1)).ok());
  const auto lines = screen.Lines(200);
  EXPECT_THAT(lines,
              Contains(HasSubstr("EmberCache 1.2   up 1.5 min   serving; the store is down")));
  EXPECT_THAT(lines,
              Contains(HasSubstr("vision: 4.0 KiB in 4 pages, 1 entries, 0 pinned, 7 evict")));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("free"), HasSubstr("75.0 %"))));
  EXPECT_THAT(lines, Contains(HasSubstr("redis is down: refused")));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("breaker, get"), HasSubstr("OPEN"))));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("breaker, put"), HasSubstr("closed"))));
  EXPECT_THAT(lines, Contains(HasSubstr("already present 1000000")));
  EXPECT_THAT(lines, Contains(HasSubstr("image, rows of 8 F32, namespace ab")));
  EXPECT_THAT(lines, Contains(HasSubstr("INVALID bad")));
}

TEST(TopScreenTest, KeepsToItsWidthAndSendsNothingThatMovesTheCursor) {
  TopScreen screen;
  ASSERT_TRUE(screen.Add(At(0), kStats, Metrics(1, 1)).ok());
  EXPECT_THAT(screen.Lines(40), Each(SizeIs(testing::Le(40U))));
  for (const std::string& line : screen.Lines(200)) {
    EXPECT_THAT(line, AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\xc2\x9b"))));
  }
}

TEST(TopScreenTest, BeginsAnewWhenTheServerWasRestarted) {
  TopScreen screen;
  ASSERT_TRUE(screen.Add(At(0), kStats, Metrics(50, 50)).ok());
  ASSERT_TRUE(screen.Add(At(1), kStats, Metrics(0, 1)).ok());
  EXPECT_THAT(screen.Lines(200), Contains(HasSubstr("Hit rate             - in the last minute")));
}

TEST(TopScreenTest, SaysThatSomethingElseAnswers) {
  TopScreen screen;
  EXPECT_FALSE(screen.Add(At(0), "hello", "").ok());
  EXPECT_FALSE(screen.Add(At(0), "{}", "").ok());
}

}  // namespace
}  // namespace embercache
