#include "src/memory/page_pool.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <numeric>

#include "src/base/log.h"
#include "src/base/units.h"

// Invariants: counts_ sums to the pages made usable so far; counts_[kFree] is the allocator's
// number; a page that was never made usable is in use for the allocator and in no count. The lock
// is a leaf: nothing else is locked, called back or waited for under it.

namespace embercache {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kPrefaultChunk = uint64_t{64} << 20;
// What Create waits for; a pool of this size is ready in well under 3 s.
constexpr uint64_t kSyncPrefaultBytes = uint64_t{1} << 30;
constexpr uint64_t kMaxPageBytes = uint64_t{256} << 10;

uint64_t RoundUp(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// True when the kernel gives shared memory huge pages where it is asked for them.
bool ShmemHugePages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  std::string text;
  std::getline(file, text);
  for (const char* on : {"[always]", "[within_size]", "[advise]", "[force]"}) {
    if (text.find(on) != std::string::npos) return true;
  }
  return false;
}

uint64_t FreeHugetlbBytes() {
  std::ifstream file("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
  uint64_t pages = 0;
  file >> pages;
  return pages * kHugePage;
}

Status Populate(std::byte* address, uint64_t bytes) {
  if (bytes == 0) return Status::Ok();
#ifdef MADV_POPULATE_WRITE
  if (madvise(address, bytes, MADV_POPULATE_WRITE) == 0) return Status::Ok();
  if (errno != EINVAL) return Status::FromErrno(errno, "pre-faulting pool memory");
#endif
  // A kernel before 5.14: Map() has reserved the memory, so touching it cannot raise SIGBUS.
  for (uint64_t offset = 0; offset < bytes; offset += kBlockBytes) {
    *reinterpret_cast<volatile char*>(address + offset) = 0;
  }
  return Status::Ok();
}

// Populates with as many threads as help; the first error wins.
Status PopulateParallel(std::byte* address, uint64_t bytes) {
  const uint64_t threads = std::clamp<uint64_t>(std::thread::hardware_concurrency(), 1, 4);
  const uint64_t share = RoundUp(bytes / threads, kHugePage);
  std::vector<std::thread> workers;
  std::vector<Status> results(threads);
  for (uint64_t i = 1; i < threads && i * share < bytes; ++i) {
    workers.emplace_back([&results, i, address, share, bytes] {
      results[i] = Populate(address + i * share, std::min(share, bytes - i * share));
    });
  }
  results[0] = Populate(address, std::min(share, bytes));
  for (std::thread& worker : workers) worker.join();
  for (Status& result : results) EMBERCACHE_RETURN_IF_ERROR(result);
  return Status::Ok();
}

}  // namespace

uint64_t PageBytesFor(uint64_t row_bytes) {
  const uint64_t unit = std::lcm(row_bytes, kBlockBytes);
  return std::max<uint64_t>(1, kMaxPageBytes / unit) * unit;
}

PageList::PageList(PageList&& other) noexcept
    : pool_(std::move(other.pool_)),
      runs_(std::move(other.runs_)),
      trailer_(std::exchange(other.trailer_, {})),
      num_pages_(std::exchange(other.num_pages_, 0)),
      state_(other.state_) {
  other.pool_.reset();
  other.runs_.clear();
}

PageList& PageList::operator=(PageList&& other) noexcept {
  if (this != &other) {
    Reset();
    pool_ = std::move(other.pool_);
    other.pool_.reset();
    runs_ = std::move(other.runs_);
    other.runs_.clear();
    trailer_ = std::exchange(other.trailer_, {});
    num_pages_ = std::exchange(other.num_pages_, 0);
    state_ = other.state_;
  }
  return *this;
}

void PageList::SetState(PageState state) {
  assert(pool_ && state != PageState::kFree);
  MutexLock lock(pool_->mutex_);
  pool_->Account(state_, state, num_pages_);
  state_ = state;
}

void PageList::Truncate(uint32_t num_pages) {
  assert(num_pages > 0 && num_pages <= num_pages_);
  MutexLock lock(pool_->mutex_);
  while (num_pages_ > num_pages) {
    PageRun& last = runs_.back();
    const uint32_t surplus = std::min(last.length, num_pages_ - num_pages);
    last.length -= surplus;
    pool_->pages_->Free({last.start + last.length, surplus});
    pool_->Account(state_, PageState::kFree, surplus);
    num_pages_ -= surplus;
    if (last.length == 0) runs_.pop_back();
  }
}

void PageList::Reset() {
  if (!pool_) return;
  {
    MutexLock lock(pool_->mutex_);
    for (const PageRun& run : runs_) pool_->pages_->Free(run);
    if (trailer_.length > 0) pool_->trailers_->Free(trailer_);
    pool_->Account(state_, PageState::kFree, num_pages_);
  }
  runs_.clear();
  trailer_ = {};
  num_pages_ = 0;
  pool_.reset();
}

std::vector<MutableBuffer> PageList::PageSpans(uint64_t bytes) const {
  std::vector<MutableBuffer> spans;
  spans.reserve(runs_.size());
  for (const PageRun& run : runs_) {
    if (bytes == 0) break;
    const uint64_t length = std::min(bytes, uint64_t{run.length} * pool_->page_bytes());
    spans.emplace_back(pool_->PageAddress(run.start), length);
    bytes -= length;
  }
  assert(bytes == 0);
  return spans;
}

MutableBuffer PageList::TrailerSpan() const {
  return {pool_->TrailerAddress(trailer_.start), trailer_.length * kBlockBytes};
}

Result<std::shared_ptr<PagePool>> PagePool::Create(PagePoolOptions options) {
  if (options.row_bytes == 0) {
    return Status::Invalid(fmt::format("pool {}: rows of 0 bytes", options.name));
  }
  if (options.page_bytes == 0) options.page_bytes = PageBytesFor(options.row_bytes);
  if (options.page_bytes % std::lcm(options.row_bytes, kBlockBytes) != 0) {
    return Status::Invalid(
        fmt::format("pool {}: a page of {} bytes does not hold whole rows of {} "
                    "bytes and whole blocks of {}",
                    options.name, options.page_bytes, options.row_bytes, kBlockBytes));
  }
  const uint64_t pages = options.size_bytes / (options.page_bytes + kBlockBytes);
  if (pages == 0 || pages > (uint64_t{1} << 31)) {
    return Status::Invalid(fmt::format(
        "pool {}: {} is {} for pages of {}", options.name, FormatBytes(options.size_bytes),
        pages == 0 ? "too small" : "too large", FormatBytes(options.page_bytes)));
  }
  std::shared_ptr<PagePool> pool(new PagePool(std::move(options)));
  pool->num_pages_ = static_cast<uint32_t>(pages);
  EMBERCACHE_RETURN_IF_ERROR(pool->Map());
  {
    MutexLock lock(pool->mutex_);
    pool->pages_ = std::make_unique<RunAllocator>(pool->num_pages_);
    pool->trailers_ = std::make_unique<RunAllocator>(pool->num_pages_);
    pool->trailers_->Free({0, pool->num_pages_});
  }
  const uint32_t sync_pages =
      static_cast<uint32_t>(std::min<uint64_t>(pages, kSyncPrefaultBytes / pool->page_bytes() + 1));
  EMBERCACHE_RETURN_IF_ERROR(pool->Prefault(0, sync_pages));
  if (sync_pages < pages) {
    pool->prefault_thread_ = std::thread([raw = pool.get(), sync_pages] {
      const Status status = raw->Prefault(sync_pages, raw->num_pages_);
      if (!status.ok()) {
        LOG_ERROR("pool {}: stays at {} of {} pages: {}", raw->name(), raw->Stats().pages,
                  raw->num_pages_, status.ToString());
      }
    });
  }
  return pool;
}

Status PagePool::Map() {
  const uint64_t page_area = RoundUp(uint64_t{num_pages_} * page_bytes(), kHugePage);
  mapped_bytes_ = page_area + RoundUp(uint64_t{num_pages_} * kBlockBytes, kHugePage);
  const bool hugetlb = FreeHugetlbBytes() >= mapped_bytes_;
  fd_ = memfd_create("embercache-pool", MFD_CLOEXEC | (hugetlb ? MFD_HUGETLB : 0U));
  if (fd_ < 0) return Status::FromErrno(errno, fmt::format("pool {}: memfd_create", name()));
  if (ftruncate(fd_, static_cast<off_t>(mapped_bytes_)) != 0) {
    return Status::FromErrno(errno, fmt::format("pool {}: {}", name(), FormatBytes(mapped_bytes_)));
  }
  // The reservation is larger by one huge page, so that an aligned start lies in it.
  void* reserved =
      mmap(nullptr, mapped_bytes_ + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved == MAP_FAILED) {
    return Status::FromErrno(
        errno, fmt::format("pool {}: reserving {}", name(), FormatBytes(mapped_bytes_)));
  }
  auto start = reinterpret_cast<uintptr_t>(reserved);
  const uintptr_t aligned = RoundUp(start, kHugePage);
  if (aligned > start) munmap(reserved, aligned - start);
  if (const uintptr_t tail = start + kHugePage - aligned; tail > 0) {
    munmap(reinterpret_cast<void*>(aligned + mapped_bytes_), tail);
  }
  base_ = reinterpret_cast<std::byte*>(aligned);
  slab_ = base_ + page_area;
  if (mmap(base_, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_, 0) ==
      MAP_FAILED) {
    return Status::FromErrno(
        errno, fmt::format("pool {}: mapping {}", name(), FormatBytes(mapped_bytes_)));
  }
  if (hugetlb) {
    page_kind_ = "hugetlb 2 MiB pages";
  } else if (ShmemHugePages() && madvise(base_, mapped_bytes_, MADV_HUGEPAGE) == 0) {
    page_kind_ = "shmem huge pages";
  }
  return Status::Ok();
}

Status PagePool::Prefault(uint32_t first_page, uint32_t end_page) {
  const auto chunk_pages =
      static_cast<uint32_t>(std::max<uint64_t>(1, kPrefaultChunk / page_bytes()));
  const uint64_t total = uint64_t{num_pages_} * page_bytes();
  for (uint32_t page = first_page; page < end_page && !stop_.load(std::memory_order_relaxed);) {
    const uint32_t count =
        options_.prefault ? std::min(chunk_pages, end_page - page) : end_page - page;
    if (options_.prefault) {
      EMBERCACHE_RETURN_IF_ERROR(PopulateParallel(PageAddress(page), count * page_bytes()));
      EMBERCACHE_RETURN_IF_ERROR(Populate(TrailerAddress(page), count * kBlockBytes));
    }
    {
      MutexLock lock(mutex_);
      pages_->Free({page, count});
      counts_[static_cast<size_t>(PageState::kFree)] += count;
    }
    page += count;
    if (options_.progress) options_.progress(page * page_bytes(), total);
  }
  return Status::Ok();
}

PagePool::~PagePool() {
  stop_ = true;
  if (prefault_thread_.joinable()) prefault_thread_.join();
  if (base_ != nullptr) munmap(base_, mapped_bytes_);
  if (fd_ >= 0) close(fd_);
}

void PagePool::WaitPrefaulted() {
  if (prefault_thread_.joinable()) prefault_thread_.join();
}

void PagePool::Account(PageState from, PageState to, uint32_t pages) {
  assert(counts_[static_cast<size_t>(from)] >= pages);
  counts_[static_cast<size_t>(from)] -= pages;
  counts_[static_cast<size_t>(to)] += pages;
}

bool PagePool::Allocate(uint32_t pages, uint32_t trailer_blocks, bool contiguous, PageList* list) {
  assert(pages > 0);
  PageList taken;
  std::vector<PageRun> trailer;
  MutexLock lock(mutex_);
  if (pages > pages_->free_pages()) return false;
  if (trailer_blocks > 0 && !trailers_->Allocate(trailer_blocks, true, &trailer)) return false;
  if (!pages_->Allocate(pages, contiguous, &taken.runs_)) {
    if (!trailer.empty()) trailers_->Free(trailer.front());
    return false;
  }
  Account(PageState::kFree, PageState::kFilling, pages);
  lock.Unlock();
  if (!trailer.empty()) taken.trailer_ = trailer.front();
  taken.num_pages_ = pages;
  taken.pool_ = shared_from_this();
  *list = std::move(taken);
  return true;
}

PagePoolStats PagePool::Stats() const {
  MutexLock lock(mutex_);
  PagePoolStats stats;
  stats.free = counts_[static_cast<size_t>(PageState::kFree)];
  stats.filling = counts_[static_cast<size_t>(PageState::kFilling)];
  stats.ready = counts_[static_cast<size_t>(PageState::kReady)];
  stats.quarantined = counts_[static_cast<size_t>(PageState::kQuarantined)];
  stats.pages = stats.free + stats.filling + stats.ready + stats.quarantined;
  stats.trailer_blocks_free = trailers_->free_pages();
  return stats;
}

BufferRegion PagePool::Region() const {
  return {{base_, mapped_bytes_}, fd_, 0};
}

}  // namespace embercache
