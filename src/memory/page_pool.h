#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "embercache/buffer.h"
#include "embercache/status.h"
#include "src/base/mutex.h"
#include "src/memory/run_allocator.h"

namespace embercache {

class PagePool;

// Bytes of a trailer block; payloads are padded to a multiple of it (docs/formats.md).
inline constexpr uint64_t kBlockBytes = 4096;

// What pages are used for; a metric label.
enum class PageState : uint8_t { kFree, kFilling, kReady, kQuarantined };

// Pages and trailer blocks of one pool, given back on destruction. Keeps the pool's memory alive.
// Move-only; not synchronised.
class PageList {
 public:
  PageList() = default;
  PageList(PageList&& other) noexcept;
  PageList& operator=(PageList&& other) noexcept;
  ~PageList() { Reset(); }

  explicit operator bool() const { return pool_ != nullptr; }
  PagePool& pool() const { return *pool_; }
  uint32_t num_pages() const { return num_pages_; }
  uint32_t num_trailer_blocks() const { return trailer_.length; }
  std::span<const PageRun> runs() const { return runs_; }
  PageState state() const { return state_; }

  void SetState(PageState state);
  // Keeps the first `num_pages` pages, gives the others back. REQUIRES: 0 < num_pages <=
  // num_pages().
  void Truncate(uint32_t num_pages);
  void Reset();

  // The first `bytes` bytes of the pages, one span a run.
  std::vector<MutableBuffer> PageSpans(uint64_t bytes) const;
  // The trailer blocks, contiguous.
  MutableBuffer TrailerSpan() const;

 private:
  friend class PagePool;
  std::shared_ptr<PagePool> pool_;
  std::vector<PageRun> runs_;
  PageRun trailer_;
  uint32_t num_pages_ = 0;
  PageState state_ = PageState::kFilling;
};

struct PagePoolOptions {
  // In metrics and messages: "image/1536".
  std::string name;
  // A row never crosses a page. 1 for memory without rows.
  uint64_t row_bytes = 1;
  // For pages and their trailer blocks together.
  uint64_t size_bytes = 0;
  // Touch all memory at creation: up to kSyncPrefaultBytes before Create returns, the rest in the
  // background, usable as it comes. False: touched at first use.
  bool prefault = true;
  // 0: the largest multiple of lcm(row_bytes, 4096) that is at most 256 KiB, at least one.
  uint64_t page_bytes = 0;
  // Called from one thread as memory becomes usable; may be empty.
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress;
};

struct PagePoolStats {
  uint32_t pages = 0;  // usable now: the sum of the four below
  uint32_t free = 0;
  uint32_t filling = 0;
  uint32_t ready = 0;
  uint32_t quarantined = 0;
  uint32_t trailer_blocks_free = 0;
};

// Page size for rows of `row_bytes`, as PagePoolOptions::page_bytes says.
uint64_t PageBytesFor(uint64_t row_bytes);

// Host memory for rows of one size, cut in pages, with a slab of trailer blocks behind them: one
// mapping of a memfd, 2 MiB aligned, on huge pages where they are real. Thread-safe. Held by
// shared_ptr; PageLists keep it alive.
class PagePool : public std::enable_shared_from_this<PagePool> {
 public:
  // ResourceExhausted, with what was asked for and what there is, when the memory cannot be had;
  // Invalid when not even one page fits.
  static Result<std::shared_ptr<PagePool>> Create(PagePoolOptions options);
  ~PagePool();

  // Nothing of it when there are fewer free pages or no run of `trailer_blocks`; with `contiguous`,
  // when there is no single run of pages. REQUIRES: pages > 0.
  bool Allocate(uint32_t pages, uint32_t trailer_blocks, bool contiguous, PageList* list);

  const std::string& name() const { return options_.name; }
  uint64_t row_bytes() const { return options_.row_bytes; }
  uint64_t page_bytes() const { return options_.page_bytes; }
  // Pages when all memory is usable.
  uint32_t num_pages() const { return num_pages_; }
  uint32_t PagesFor(uint64_t bytes) const {
    return static_cast<uint32_t>((bytes + page_bytes() - 1) / page_bytes());
  }
  PagePoolStats Stats() const;
  // What the memory lies on: "4 KiB pages", "hugetlb 2 MiB pages", "shmem huge pages".
  const char* page_kind() const { return page_kind_; }
  // All of it, for EmbeddingStore::RegisterBuffer.
  BufferRegion Region() const;
  // Blocks until all memory is usable, or an error ended that. For one caller.
  void WaitPrefaulted();

 private:
  friend class PageList;
  explicit PagePool(PagePoolOptions options) : options_(std::move(options)) {}
  Status Map();
  // Makes [done, end) of the page area usable, chunk by chunk.
  Status Prefault(uint32_t first_page, uint32_t end_page);
  void Account(PageState from, PageState to, uint32_t pages) REQUIRES(mutex_);
  std::byte* PageAddress(uint32_t page) const { return base_ + uint64_t{page} * page_bytes(); }
  std::byte* TrailerAddress(uint32_t block) const { return slab_ + uint64_t{block} * kBlockBytes; }

  PagePoolOptions options_;
  const char* page_kind_ = "4 KiB pages";
  int fd_ = -1;
  std::byte* base_ = nullptr;
  std::byte* slab_ = nullptr;
  uint64_t mapped_bytes_ = 0;
  uint32_t num_pages_ = 0;
  std::atomic<bool> stop_{false};
  std::thread prefault_thread_;

  mutable Mutex mutex_;
  std::unique_ptr<RunAllocator> pages_ GUARDED_BY(mutex_);
  std::unique_ptr<RunAllocator> trailers_ GUARDED_BY(mutex_);
  uint32_t counts_[4] GUARDED_BY(mutex_) = {};  // by PageState
};

}  // namespace embercache
