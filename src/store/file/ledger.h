#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "embercache/clock.h"
#include "embercache/status.h"
#include "embercache/store.h"
#include "src/base/mutex.h"
#include "src/store/file/unique_fd.h"

namespace embercache {

// A shard is the objects of one first-level folder.
inline constexpr size_t kShards = 256;

// What the ledger file holds: how many bytes are used, as ChargeOf counts them.
struct LedgerPage {
  static constexpr uint64_t kMagic = 0x31474c5245424d45U;  // "EMBERLG1"

  uint64_t magic = kMagic;
  uint64_t counted = 0;        // whether the numbers below are to be relied on
  uint64_t pending_bytes = 0;  // of temp files
  std::array<uint64_t, kShards> shard_bytes{};

  uint64_t total_bytes() const;
};

// The file that all processes on a store's folder share. Who holds its lock may change names in the
// folder: objects appear and disappear under it alone, so that the page is exact. A process that
// dies lets the lock go, and leaves a page that is at most one object off.
//
// Thread-safe. The lock is an OFD lock between processes, a mutex between the threads of one.
class Ledger {
 public:
  // The ledger at `path`, a relative one, under `root_fd`.
  Ledger(int root_fd, std::string path) : root_fd_(root_fd), path_(std::move(path)) {}

  // Holds the lock. The page is written back when it ends.
  class Guard {
   public:
    Guard(Guard&& other) noexcept;
    Guard& operator=(Guard&&) = delete;
    ~Guard();
    LedgerPage& page() { return page_; }
    // Writes the page now: before a change that must not be counted too low by who comes after a
    // kill.
    void Save();
    // Closes the file once the lock is free: freeing the space of a removed one takes a while. Of
    // very many files the last ones are closed at once.
    void CloseLater(UniqueFd fd) {
      if (to_close_.size() < kMaxToClose) to_close_.push_back(std::move(fd));
    }

   private:
    friend class Ledger;
    explicit Guard(Ledger* ledger) : ledger_(ledger) {}
    static constexpr size_t kMaxToClose = 64;
    Ledger* ledger_;  // null once moved from
    LedgerPage page_;
    std::vector<UniqueFd> to_close_;
  };

  // Waits until the context's deadline, but 5 s at most: DeadlineExceeded, Cancelled or Unavailable
  // when others hold the lock for longer. A ledger that was removed is made again, uncounted.
  Result<Guard> Lock(const CallContext& context, const Clock& clock) EXCLUDES(mutex_);

  // The total as it was last written; 0 when it is not known.
  uint64_t PeekTotalBytes() const;

 private:
  // REQUIRES for all below: this thread set held_.
  Status OpenAndLock(const CallContext& context, const Clock& clock, TimePoint give_up);
  Status WaitForFileLock(const CallContext& context, const Clock& clock, TimePoint give_up);
  bool IsStillInPlace() const;
  LedgerPage Read() const;
  void Unlock() EXCLUDES(mutex_);

  const int root_fd_;
  const std::string path_;
  Mutex mutex_;
  CondVar free_;
  bool held_ GUARDED_BY(mutex_) = false;
  UniqueFd fd_;  // owned by who set held_
};

}  // namespace embercache
