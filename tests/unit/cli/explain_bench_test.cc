#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/cli/store_bench.h"

namespace embercache {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

std::vector<BenchMeasure> MeasuresOf(const BenchLoad& load, double get_gb_per_s,
                                     std::optional<double> p99_ms) {
  const auto measure = [&](const char* op, double p50, double gb_per_s) {
    return BenchMeasure{op, load, 10, p50, p99_ms, gb_per_s};
  };
  return {measure("copy", 1, 10), measure("put", 9, 1), measure("get", 4, get_gb_per_s),
          measure("cache get", 5, 2), measure("host hit", 0.01, 0)};
}

TEST(QuantileTest, IsTheValueBelowWhichThePartLies) {
  EXPECT_EQ(Quantile({}, 0.5), 0);
  EXPECT_EQ(Quantile({7}, 0.99), 7);
  EXPECT_EQ(Quantile({1, 2, 3, 4}, 0.5), 3);
  std::vector<double> hundred;
  for (int i = 0; i < 100; ++i) hundred.push_back(i);
  EXPECT_EQ(Quantile(hundred, 0.99), 99);
  EXPECT_EQ(Quantile(hundred, 1), 99);
}

TEST(ExplainBenchTest, TellsWhatASingleRequestOfTheLargestSizeSees) {
  auto measures = MeasuresOf({1 << 20, 1, 1}, 1, 6);
  const auto large = MeasuresOf({8 << 20, 1, 1}, 2.5, 7);
  measures.insert(measures.end(), large.begin(), large.end());
  const auto text = ExplainBench(measures, "file");
  EXPECT_THAT(text, Contains(HasSubstr("A get of 8.0 MiB from file takes 4.00 ms, in the worst of "
                                       "a hundred cases 7.00 ms. On average that is 2.50 GB/s, "
                                       "25 % ")));
  EXPECT_THAT(text, Contains(HasSubstr("in 5.00 ms (2.00 GB/s): an item whose encoder takes longer "
                                       "than 5.00 ms is worth sharing")));
  EXPECT_THAT(text, Contains(HasSubstr("found in 0.010 ms")));
  EXPECT_THAT(text, Not(Contains(HasSubstr("--lookup-timeout-ms"))));
}

TEST(ExplainBenchTest, TellsWhatMoreThreadsBringAndWhenLookUpsWouldMiss) {
  auto measures = MeasuresOf({1 << 20, 1, 1}, 1, 6);
  const auto loaded = MeasuresOf({1 << 20, 8, 4}, 3, 700);
  measures.insert(measures.end(), loaded.begin(), loaded.end());
  const auto text = ExplainBench(measures, "redis");
  EXPECT_THAT(text, Contains(HasSubstr("With 8 objects of 1.0 MiB at a time on 4 threads the store "
                                       "gives 3.00 GB/s")));
  EXPECT_THAT(text, Contains(HasSubstr("look-ups of 8 objects of 1.0 MiB on 4 threads take longer "
                                       "(700 ms) than a request waits")));
}

// Calls of several objects were told as if they were calls of one.
TEST(ExplainBenchTest, TellsTheTimesOfOneItemAlsoWhereEveryCallHadSeveral) {
  const auto text = ExplainBench(MeasuresOf({1 << 20, 8, 1}, 1, 6), "file");
  EXPECT_THAT(text, Contains(HasSubstr("A get of 8 objects of 1.0 MiB from file takes 4.00 ms")));
  EXPECT_THAT(text, Contains(HasSubstr("encoder takes longer than 0.62 ms")));
  EXPECT_THAT(text, Contains(HasSubstr("Publishing one takes 1.12 ms")));
  EXPECT_THAT(text, Contains(HasSubstr("found in 0.001 ms")));
}

// The best figure may be of another size than the first sentence.
TEST(ExplainBenchTest, NamesTheSizeOfTheFastestGets) {
  auto measures = MeasuresOf({1 << 20, 1, 1}, 1, 6);
  const auto small = MeasuresOf({64 << 10, 8, 4}, 3, 6);
  measures.insert(measures.end(), small.begin(), small.end());
  EXPECT_THAT(ExplainBench(measures, "file"),
              Contains(HasSubstr("With 8 objects of 64.0 KiB at a time on 4 threads")));
}

TEST(ExplainBenchTest, TellsNothingOfTheWorstCaseAfterTooFewCalls) {
  const auto text = ExplainBench(MeasuresOf({1 << 20, 1, 1}, 1, std::nullopt), "file");
  EXPECT_THAT(text, Contains(HasSubstr("a longer --time")));
  EXPECT_THAT(text, Not(Contains(HasSubstr("in the worst of"))));
  EXPECT_THAT(text, Not(Contains(HasSubstr("--lookup-timeout-ms"))));
}

}  // namespace
}  // namespace embercache
