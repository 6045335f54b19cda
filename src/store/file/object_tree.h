#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "embercache/clock.h"
#include "embercache/status.h"
#include "embercache/store.h"
#include "src/store/file/ledger.h"
#include "src/store/file/temp_file.h"
#include "src/store/file/unique_fd.h"

namespace embercache {

struct TreeLimits {
  uint64_t max_bytes = 0;
  int64_t ttl_s = 0;  // 0: objects do not expire
};

// The objects in one folder, and the budget that all processes on it share: what makes, replaces
// and removes objects. Reading them needs no more than fd(). Thread-safe.
class ObjectTree {
 public:
  // An object that is being written. Without a Commit it leaves no trace.
  class Pending {
   public:
    Pending(Pending&& other) noexcept
        : tree_(std::exchange(other.tree_, nullptr)),
          file_(std::move(other.file_)),
          charge_(other.charge_) {}
    Pending& operator=(Pending&&) = delete;
    ~Pending() {
      if (tree_ != nullptr) tree_->Abandon(*this);
    }
    const TempFile& file() const { return file_; }

   private:
    friend class ObjectTree;
    Pending(ObjectTree* tree, TempFile file, uint64_t charge)
        : tree_(tree), file_(std::move(file)), charge_(charge) {}
    ObjectTree* tree_;  // null once committed
    TempFile file_;
    uint64_t charge_;
  };

  ObjectTree(UniqueFd root, const TreeLimits& limits, const Clock* clock);

  int fd() const { return root_.get(); }

  // Proves that objects can be written, removes what the dead left, counts what is there, and
  // removes the least recently used until it is within the budget.
  Status Start();

  // Room for an object of `bytes`, made by eviction where need be. Invalid when it can never fit.
  Result<Pending> Begin(uint64_t bytes, const CallContext& context);
  // Makes it readable under `path`, or AlreadyExists.
  Status Commit(Pending object, const std::string& path, PutMode mode, const CallContext& context);

  Result<RemoveOutcome> Remove(const std::string& path, const std::optional<ObjectVersion>& version,
                               const CallContext& context);

  // Removes the least recently used objects until `bytes` are free, for a disk that is full;
  // returns how many became free.
  Result<uint64_t> MakeSpace(uint64_t bytes, const CallContext& context);

  // The bytes in use, by all processes; how many objects this one evicted.
  uint64_t used_bytes() const { return ledger_.PeekTotalBytes(); }
  uint64_t evicted_objects() const { return evicted_objects_.load(std::memory_order_relaxed); }

 private:
  struct Candidate {
    std::string path;
    timespec used = {};
  };

  Status LockInto(std::optional<Ledger::Guard>& guard, const CallContext& context);
  // Counts each shard and the temp files, removes what is expired, and fills candidates_. Others
  // get the lock between two shards.
  Status Walk(const CallContext& context);
  Status WalkShard(size_t shard, std::vector<Candidate>& oldest, const CallContext& context);
  Status SweepTemps(Ledger::Guard& guard);
  // Evicts until `page.total_bytes() + bytes` is within the budget. May let the lock go between.
  Status MakeRoom(std::optional<Ledger::Guard>& guard, uint64_t bytes, const CallContext& context);
  // Removes the first of candidates_ that was not used since; returns what it counted for, 0 when
  // there is none.
  uint64_t EvictNext(Ledger::Guard& guard);
  // Keeps a file that is about to go, so that its end can wait for CloseLater.
  UniqueFd Hold(const std::string& path) const;
  // Removes the file and what it counted for. False with errno set.
  bool Unlink(Ledger::Guard& guard, const std::string& path, const struct stat& info);
  void Abandon(Pending& object);

  const UniqueFd root_;
  const TreeLimits limits_;
  const Clock* const clock_;
  Ledger ledger_;
  // Both belong to who holds the ledger's lock.
  std::vector<Candidate> candidates_;  // the least recently used last
  TimePoint next_sweep_;
  std::atomic<uint64_t> evicted_objects_ = 0;
};

}  // namespace embercache
