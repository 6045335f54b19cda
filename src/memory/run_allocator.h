#pragma once

#include <cstdint>
#include <vector>

namespace embercache {

// `length` pages from `start` on.
struct PageRun {
  uint32_t start = 0;
  uint32_t length = 0;
  bool operator==(const PageRun&) const = default;
};

// Which of N pages are free. Prefers one contiguous run, the first that fits; else takes free pages
// in physical order. A bitmap, so that nothing is allocated but the answer, and 10,000 holes cost
// no more than one. Not thread-safe.
class RunAllocator {
 public:
  // All pages start in use; Free() them to begin with.
  explicit RunAllocator(uint32_t num_pages);

  // Fills `runs` with `count` pages, adjacent ones merged. False, and nothing taken, when there are
  // not as many; with `contiguous`, when there is no single run of them. REQUIRES: count > 0.
  bool Allocate(uint32_t count, bool contiguous, std::vector<PageRun>* runs);
  // REQUIRES: the run's pages are in use.
  void Free(PageRun run);

  uint32_t num_pages() const { return num_pages_; }
  uint32_t free_pages() const { return free_pages_; }
  // The free pages as maximal runs, in physical order. Linear in num_pages.
  std::vector<PageRun> FreeRuns() const;

 private:
  bool FindContiguous(uint32_t count, uint32_t* start) const;
  // The first page at or after `from` that is (not) free; num_pages_ when there is none.
  uint32_t FindBit(uint32_t from, bool is_free) const;
  void Mark(PageRun run, bool is_free);

  const uint32_t num_pages_;
  uint32_t free_pages_ = 0;
  // No free page lies before this one.
  uint32_t first_free_ = 0;
  std::vector<uint64_t> free_bits_;
};

}  // namespace embercache
