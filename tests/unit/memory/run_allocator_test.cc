#include "src/memory/run_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace embercache {
namespace {

RunAllocator AllFree(uint32_t pages) {
  RunAllocator allocator(pages);
  allocator.Free({0, pages});
  return allocator;
}

TEST(RunAllocatorTest, PrefersOneContiguousRun) {
  RunAllocator allocator = AllFree(100);
  std::vector<PageRun> first, second, third;
  ASSERT_TRUE(allocator.Allocate(10, false, &first));
  ASSERT_TRUE(allocator.Allocate(20, false, &second));
  allocator.Free(first.front());
  ASSERT_TRUE(allocator.Allocate(11, false, &third));
  EXPECT_EQ(third, (std::vector<PageRun>{{30, 11}}));
}

TEST(RunAllocatorTest, ScattersInPhysicalOrderWhenNoRunIsLongEnough) {
  RunAllocator allocator = AllFree(10);
  std::vector<PageRun> all, runs;
  ASSERT_TRUE(allocator.Allocate(10, true, &all));
  for (uint32_t page : {8U, 2U, 4U, 5U}) allocator.Free({page, 1});
  EXPECT_FALSE(allocator.Allocate(4, true, &runs));
  EXPECT_EQ(allocator.free_pages(), 4U);
  ASSERT_TRUE(allocator.Allocate(4, false, &runs));
  EXPECT_EQ(runs, (std::vector<PageRun>{{2, 1}, {4, 2}, {8, 1}}));
  EXPECT_FALSE(allocator.Allocate(1, false, &runs));
}

TEST(RunAllocatorTest, AdjacentFreeRunsMerge) {
  RunAllocator allocator(200);
  allocator.Free({0, 64});
  allocator.Free({128, 72});
  allocator.Free({64, 64});
  EXPECT_EQ(allocator.FreeRuns(), (std::vector<PageRun>{{0, 200}}));
}

// The model: one flag a page.
TEST(RunAllocatorTest, AgreesWithAModelOverRandomSequences) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 random(seed);
    const auto pages = static_cast<uint32_t>(1 + random() % 300);
    RunAllocator allocator = AllFree(pages);
    std::vector<bool> used(pages);
    std::vector<std::vector<PageRun>> held;
    for (int step = 0; step < 300; ++step) {
      if (random() % 2 == 0 && !held.empty()) {
        std::swap(held[random() % held.size()], held.back());
        for (PageRun run : held.back()) {
          allocator.Free(run);
          std::fill_n(used.begin() + run.start, run.length, false);
        }
        held.pop_back();
      } else {
        const auto count = static_cast<uint32_t>(1 + random() % 40);
        const bool contiguous = random() % 4 == 0;
        const auto free = static_cast<uint32_t>(std::count(used.begin(), used.end(), false));
        uint32_t longest = 0, length = 0;
        for (bool u : used) longest = std::max(longest, length = u ? 0 : length + 1);
        std::vector<PageRun> runs;
        const bool got = allocator.Allocate(count, contiguous, &runs);
        ASSERT_EQ(got, contiguous ? longest >= count : free >= count) << "seed " << seed;
        if (!got) continue;
        if (longest >= count) {
          ASSERT_EQ(runs.size(), 1U) << "seed " << seed;
        }
        uint32_t total = 0, end = 0;
        for (PageRun run : runs) {
          ASSERT_GE(run.start, end) << "seed " << seed;
          for (uint32_t p = run.start; p < run.start + run.length; ++p) {
            ASSERT_FALSE(used[p]) << "seed " << seed;
            used[p] = true;
          }
          end = run.start + run.length;
          total += run.length;
        }
        ASSERT_EQ(total, count) << "seed " << seed;
        held.push_back(runs);
      }
      ASSERT_EQ(allocator.free_pages(),
                static_cast<uint32_t>(std::count(used.begin(), used.end(), false)))
          << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace embercache
