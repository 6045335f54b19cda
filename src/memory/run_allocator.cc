#include "src/memory/run_allocator.h"

#include <algorithm>
#include <bit>
#include <cassert>

// Invariants: bit i of free_bits_ is set exactly when page i is free; free_pages_ is their number;
// no bit below first_free_ or at or above num_pages_ is set.

namespace embercache {
namespace {
constexpr uint32_t kBits = 64;

// Bit i is set where bits i to i + count - 1 of `word` are.
uint64_t RunStarts(uint64_t word, uint32_t count) {
  if (count > kBits) return 0;
  for (uint32_t missing = count - 1, known = 1; missing > 0;) {
    const uint32_t step = std::min(missing, known);
    word &= word >> step;
    known += step;
    missing -= step;
  }
  return word;
}

}  // namespace

RunAllocator::RunAllocator(uint32_t num_pages)
    : num_pages_(num_pages), first_free_(num_pages), free_bits_((num_pages + kBits - 1) / kBits) {}

uint32_t RunAllocator::FindBit(uint32_t from, bool is_free) const {
  while (from < num_pages_) {
    uint64_t word = free_bits_[from / kBits];
    if (!is_free) word = ~word;
    word >>= from % kBits;
    if (word != 0) {
      return std::min(num_pages_, from + static_cast<uint32_t>(std::countr_zero(word)));
    }
    from = (from / kBits + 1) * kBits;
  }
  return num_pages_;
}

// A word at a time, so that holes cost nothing: a run either crosses words, and then begins with
// the ones at the end of a word, or lies within one.
bool RunAllocator::FindContiguous(uint32_t count, uint32_t* start) const {
  uint32_t before = 0;  // free pages right before this word
  for (uint32_t word_index = first_free_ / kBits; word_index < free_bits_.size(); ++word_index) {
    const uint64_t word = free_bits_[word_index];
    const uint32_t first = word_index * kBits;
    if (before + static_cast<uint32_t>(std::countr_one(word)) >= count) {
      *start = first - before;
      return true;
    }
    if (word == ~uint64_t{0}) {
      before += kBits;
      continue;
    }
    if (const uint64_t starts = RunStarts(word, count)) {
      *start = first + static_cast<uint32_t>(std::countr_zero(starts));
      return true;
    }
    before = static_cast<uint32_t>(std::countl_one(word));
  }
  return false;
}

void RunAllocator::Mark(PageRun run, bool is_free) {
  for (uint32_t page = run.start; page < run.start + run.length;) {
    const uint32_t bit = page % kBits;
    const uint32_t span = std::min(kBits - bit, run.start + run.length - page);
    const uint64_t ones = span == kBits ? ~uint64_t{0} : (uint64_t{1} << span) - 1;
    uint64_t& word = free_bits_[page / kBits];
    assert((word & (ones << bit)) == (is_free ? 0 : ones << bit));
    word ^= ones << bit;
    page += span;
  }
  free_pages_ = is_free ? free_pages_ + run.length : free_pages_ - run.length;
}

bool RunAllocator::Allocate(uint32_t count, bool contiguous, std::vector<PageRun>* runs) {
  assert(count > 0);
  runs->clear();
  if (count > free_pages_) return false;
  uint32_t start = 0;
  if (FindContiguous(count, &start)) {
    runs->push_back({start, count});
    Mark({start, count}, false);
  } else if (contiguous) {
    return false;
  } else {
    for (uint32_t left = count; left > 0;) {
      start = FindBit(first_free_, true);
      const uint32_t length = std::min(left, FindBit(start, false) - start);
      runs->push_back({start, length});
      Mark({start, length}, false);
      first_free_ = start + length;
      left -= length;
    }
  }
  first_free_ = FindBit(first_free_, true);
  return true;
}

void RunAllocator::Free(PageRun run) {
  Mark(run, true);
  first_free_ = std::min(first_free_, run.start);
}

std::vector<PageRun> RunAllocator::FreeRuns() const {
  std::vector<PageRun> runs;
  for (uint32_t start = FindBit(first_free_, true); start < num_pages_;) {
    const uint32_t end = FindBit(start, false);
    runs.push_back({start, end - start});
    start = FindBit(end, true);
  }
  return runs;
}

}  // namespace embercache
