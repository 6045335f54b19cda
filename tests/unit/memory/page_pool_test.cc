#include "src/memory/page_pool.h"

#include <gtest/gtest.h>

#include <cstring>

#include "src/memory/memory_limit.h"

namespace embercache {
namespace {

std::shared_ptr<PagePool> Pool(uint64_t row_bytes, uint64_t pages) {
  PagePoolOptions options;
  options.name = "test";
  options.row_bytes = row_bytes;
  options.size_bytes = pages * (PageBytesFor(row_bytes) + kBlockBytes);
  return PagePool::Create(options).value();
}

TEST(PagePoolTest, PagesHoldWholeRowsAndWholeBlocks) {
  EXPECT_EQ(PageBytesFor(1), 256U << 10);
  EXPECT_EQ(PageBytesFor(4096), 256U << 10);
  EXPECT_EQ(PageBytesFor(1536), 21U * 12288);  // 384 floats
  for (uint64_t row : {1ULL, 768ULL, 1536ULL, 2048ULL, 3000ULL, 7168ULL}) {
    EXPECT_EQ(PageBytesFor(row) % row, 0U);
    EXPECT_EQ(PageBytesFor(row) % kBlockBytes, 0U);
  }
}

TEST(PagePoolTest, PagesComeBackWhenTheirListGoes) {
  const auto pool = Pool(1536, 8);
  EXPECT_EQ(pool->num_pages(), 8U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(pool->Region().memory.data()) % (2U << 20), 0U);
  {
    PageList list;
    ASSERT_TRUE(pool->Allocate(5, 2, false, &list));
    EXPECT_EQ(pool->Stats().filling, 5U);
    EXPECT_EQ(pool->Stats().trailer_blocks_free, 6U);
    PageList moved = std::move(list);
    EXPECT_FALSE(list);  // NOLINT(bugprone-use-after-move): what is promised
    moved.SetState(PageState::kReady);
    moved.Truncate(2);
    EXPECT_EQ(pool->Stats().ready, 2U);
    EXPECT_EQ(pool->Stats().free, 6U);
  }
  EXPECT_EQ(pool->Stats().free, 8U);
  EXPECT_EQ(pool->Stats().trailer_blocks_free, 8U);
}

TEST(PagePoolTest, RefusesWhatIsNotThereAndTakesNothing) {
  const auto pool = Pool(4096, 4);
  PageList list, more;
  EXPECT_FALSE(pool->Allocate(5, 1, false, &list));
  EXPECT_FALSE(pool->Allocate(1, 5, false, &list));
  EXPECT_EQ(pool->Stats().free, 4U);
  EXPECT_EQ(pool->Stats().trailer_blocks_free, 4U);
}

TEST(PagePoolTest, SpansCoverTheBytesInOrderAndMemoryOutlivesTheHandle) {
  auto pool = Pool(4096, 4);
  PageList a, b, c, scattered;
  ASSERT_TRUE(pool->Allocate(1, 0, false, &a));
  ASSERT_TRUE(pool->Allocate(1, 0, false, &b));
  ASSERT_TRUE(pool->Allocate(1, 0, false, &c));
  b.Reset();
  ASSERT_TRUE(pool->Allocate(2, 1, false, &scattered));
  const auto spans = scattered.PageSpans(pool->page_bytes() + 100);
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].size(), pool->page_bytes());
  EXPECT_EQ(spans[1].size(), 100U);
  pool.reset();
  std::memset(spans[1].data(), 7, spans[1].size());
  EXPECT_EQ(scattered.TrailerSpan().size(), kBlockBytes);
}

TEST(PagePoolTest, ATooSmallPoolSaysWhatIsWrong) {
  PagePoolOptions options;
  options.name = "image/1536";
  options.row_bytes = 1536;
  options.size_bytes = 1000;
  const auto pool = PagePool::Create(options);
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.status().message(), "pool image/1536: 1000 B is too small for pages of 252.0 KiB");
}

TEST(PagePoolTest, LargePoolsGrowInTheBackgroundToTheirSize) {
  PagePoolOptions options;
  options.name = "large";
  options.row_bytes = 4096;
  options.size_bytes = uint64_t{1200} << 20;
  uint64_t last_done = 0, total = 0;
  options.progress = [&](uint64_t done, uint64_t of) {
    EXPECT_GT(done, last_done);
    last_done = done;
    total = of;
  };
  const auto pool = PagePool::Create(options).value();
  pool->WaitPrefaulted();
  EXPECT_EQ(pool->Stats().free, pool->num_pages());
  EXPECT_EQ(last_done, total);
}

TEST(MemoryLimitTest, TheDefaultPoolIsAtMostAQuarterOfTheLimit) {
  EXPECT_GT(MemoryLimitBytes(), 0U);
  EXPECT_LE(DefaultPoolBytes(), MemoryLimitBytes() / 4);
  EXPECT_LE(DefaultPoolBytes(), 4'000'000'000U);
}

}  // namespace
}  // namespace embercache
