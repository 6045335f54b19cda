// Invariants:
// 1. Names in the folder change under the ledger's lock alone. What makes the page's numbers larger
//    is written before the change, what makes them smaller after it: they are never too low, and
//    too high by one object for each process that died between the two, until the next walk.
// 2. What is counted before a byte is written is never more than the budget.
// 3. Only what has an object's name is evicted, and only temp files of the dead are swept: other
//    files stay.

#include "src/store/file/object_tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <utility>

#include "src/base/log.h"
#include "src/base/units.h"
#include "src/store/file/io_error.h"
#include "src/store/file/object_times.h"
#include "src/store/file/object_walk.h"
#include "src/store/store_call.h"

namespace embercache {
namespace {

// What is ours in the folder beside the objects.
constexpr char kTempFolder[] = ".embercache/tmp";
constexpr char kLedgerPath[] = ".embercache/ledger";

// A walk keeps this many of the least recently used objects for evictions to come.
constexpr size_t kMaxCandidates = 1024;
// What a walk finds, other processes may evict or use before this one comes to it.
constexpr int kMaxWalks = 4;
// Others may want the lock before a large eviction is through.
constexpr size_t kEvictionsALock = 64;
constexpr auto kSweepInterval = std::chrono::seconds(60);

bool IsBefore(const timespec& a, const timespec& b) {
  return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

size_t ShardOf(std::string_view path) {
  const auto digit = [](char c) { return static_cast<size_t>(c <= '9' ? c - '0' : c - 'a' + 10); };
  return digit(path[0]) * 16 + digit(path[1]);
}

void Subtract(uint64_t& from, uint64_t bytes) {
  from -= std::min(from, bytes);
}

uint64_t ChargeOfFile(const struct stat& info) {
  return ChargeOf(static_cast<uint64_t>(info.st_size));
}

// Those above an object that was removed: who asks for that wants no trace. Those of evicted ones
// stay for the objects that come instead.
void RemoveEmptyFolders(int root_fd, const std::string& path) {
  for (size_t end = path.rfind('/'); end != path.npos && end > 0; end = path.rfind('/', end - 1)) {
    if (unlinkat(root_fd, path.substr(0, end).c_str(), AT_REMOVEDIR) != 0) return;
  }
}

// False with errno set.
bool StatFile(int root_fd, const std::string& path, struct stat* info) {
  return fstatat(root_fd, path.c_str(), info, AT_SYMLINK_NOFOLLOW) == 0;
}

}  // namespace

ObjectTree::ObjectTree(UniqueFd root, const TreeLimits& limits, const Clock* clock)
    : root_(std::move(root)),
      limits_(limits),
      clock_(clock),
      ledger_(root_.get(), kLedgerPath),
      next_sweep_(clock->Now()) {}

Status ObjectTree::Start() {
  {
    EMBERCACHE_ASSIGN_OR_RETURN(const Ledger::Guard guard, ledger_.Lock({}, *clock_));
    EMBERCACHE_ASSIGN_OR_RETURN(const TempFile probe, TempFile::Create(fd(), kTempFolder));
  }
  EMBERCACHE_RETURN_IF_ERROR(Walk({}));
  std::optional<Ledger::Guard> guard;
  EMBERCACHE_RETURN_IF_ERROR(LockInto(guard, {}));
  return MakeRoom(guard, 0, {});
}

Status ObjectTree::LockInto(std::optional<Ledger::Guard>& guard, const CallContext& context) {
  guard.reset();
  EMBERCACHE_ASSIGN_OR_RETURN(Ledger::Guard locked, ledger_.Lock(context, *clock_));
  guard.emplace(std::move(locked));
  return Status::Ok();
}

Result<ObjectTree::Pending> ObjectTree::Begin(uint64_t bytes, const CallContext& context) {
  const uint64_t charge = ChargeOf(bytes);
  if (charge > limits_.max_bytes) {
    return Status::Invalid(fmt::format("an object of {} is larger than max_bytes, {}",
                                       FormatBytes(bytes), FormatBytes(limits_.max_bytes)));
  }
  std::optional<Ledger::Guard> guard;
  EMBERCACHE_RETURN_IF_ERROR(LockInto(guard, context));
  if (guard->page().counted == 0) {
    guard.reset();
    EMBERCACHE_RETURN_IF_ERROR(Walk(context));
    EMBERCACHE_RETURN_IF_ERROR(LockInto(guard, context));
  } else if (clock_->Now() >= next_sweep_) {
    EMBERCACHE_RETURN_IF_ERROR(SweepTemps(*guard));
  }
  EMBERCACHE_RETURN_IF_ERROR(MakeRoom(guard, charge, context));
  EMBERCACHE_ASSIGN_OR_RETURN(TempFile file, TempFile::Create(fd(), kTempFolder));
  EMBERCACHE_RETURN_IF_ERROR(file.SetSize(bytes));
  guard->page().pending_bytes += charge;
  return Pending(this, std::move(file), charge);
}

void ObjectTree::Abandon(Pending& object) {
  CallContext context;
  context.deadline = SteadyClock().Now() + std::chrono::seconds(1);
  // Without the lock the page counts too much, until the next sweep.
  auto guard = ledger_.Lock(context, *clock_);
  object.file_.Discard();
  if (guard.ok()) Subtract(guard->page().pending_bytes, object.charge_);
}

Status ObjectTree::Commit(Pending object, const std::string& path, PutMode mode,
                          const CallContext& context) {
  EMBERCACHE_ASSIGN_OR_RETURN(Ledger::Guard guard, ledger_.Lock(context, *clock_));
  struct stat old = {};
  const bool replaces = StatFile(fd(), path, &old);
  if (replaces && mode == PutMode::kIfAbsent && !IsExpired(old, limits_.ttl_s)) {
    return Status::AlreadyExists(path + " is there");
  }
  if (replaces) guard.CloseLater(Hold(path));
  uint64_t& shard_bytes = guard.page().shard_bytes[ShardOf(path)];
  shard_bytes += object.charge_;
  Subtract(guard.page().pending_bytes, object.charge_);
  guard.Save();
  const Status status = object.file_.Publish(path, replaces ? PutMode::kReplace : mode);
  if (!status.ok()) {
    Subtract(shard_bytes, object.charge_);
    guard.page().pending_bytes += object.charge_;
    return status;
  }
  object.tree_ = nullptr;
  if (replaces) Subtract(shard_bytes, ChargeOfFile(old));
  return Status::Ok();
}

UniqueFd ObjectTree::Hold(const std::string& path) const {
  return UniqueFd(openat(fd(), path.c_str(), O_PATH | O_CLOEXEC | O_NOFOLLOW));
}

bool ObjectTree::Unlink(Ledger::Guard& guard, const std::string& path, const struct stat& info) {
  guard.CloseLater(Hold(path));
  if (unlinkat(fd(), path.c_str(), 0) != 0) return false;
  Subtract(guard.page().shard_bytes[ShardOf(path)], ChargeOfFile(info));
  return true;
}

Result<RemoveOutcome> ObjectTree::Remove(const std::string& path,
                                         const std::optional<ObjectVersion>& version,
                                         const CallContext& context) {
  struct stat info = {};
  if (!StatFile(fd(), path, &info) && errno == ENOENT) return RemoveOutcome::kAbsent;
  EMBERCACHE_ASSIGN_OR_RETURN(Ledger::Guard guard, ledger_.Lock(context, *clock_));
  if (StatFile(fd(), path, &info)) {
    if (version && *version != VersionOf(info)) return RemoveOutcome::kChanged;
    if (Unlink(guard, path, info)) {
      RemoveEmptyFolders(fd(), path);
      return RemoveOutcome::kRemoved;
    }
  }
  if (errno == ENOENT) return RemoveOutcome::kAbsent;
  return IoError(errno, "remove " + path);
}

Result<uint64_t> ObjectTree::MakeSpace(uint64_t bytes, const CallContext& context) {
  uint64_t freed = 0;
  std::optional<Ledger::Guard> guard;
  for (const bool after_walk : {false, true}) {
    guard.reset();
    if (after_walk) EMBERCACHE_RETURN_IF_ERROR(Walk(context));
    EMBERCACHE_RETURN_IF_ERROR(LockInto(guard, context));
    size_t evicted = 0;
    while (freed < bytes) {
      const uint64_t charge = EvictNext(*guard);
      if (charge == 0) break;
      freed += charge;
      if (++evicted % kEvictionsALock == 0) EMBERCACHE_RETURN_IF_ERROR(LockInto(guard, context));
    }
    if (freed >= bytes) break;
  }
  return freed;
}

Status ObjectTree::MakeRoom(std::optional<Ledger::Guard>& guard, uint64_t bytes,
                            const CallContext& context) {
  size_t evicted = 0;
  int walks = 0;  // since the last eviction
  while (guard->page().total_bytes() + bytes > limits_.max_bytes) {
    if (EvictNext(*guard) > 0) {
      walks = 0;
      if (++evicted % kEvictionsALock == 0) EMBERCACHE_RETURN_IF_ERROR(LockInto(guard, context));
      continue;
    }
    if (walks++ == kMaxWalks) {
      return Status::Unavailable(
          fmt::format("all of max_bytes, {}, is being written", FormatBytes(limits_.max_bytes)));
    }
    guard.reset();
    EMBERCACHE_RETURN_IF_ERROR(Walk(context));
    EMBERCACHE_RETURN_IF_ERROR(LockInto(guard, context));
  }
  return Status::Ok();
}

uint64_t ObjectTree::EvictNext(Ledger::Guard& guard) {
  while (!candidates_.empty()) {
    const Candidate candidate = std::move(candidates_.back());
    candidates_.pop_back();
    struct stat info = {};
    if (!StatFile(fd(), candidate.path, &info) || IsBefore(candidate.used, info.st_atim)) continue;
    if (!Unlink(guard, candidate.path, info)) continue;
    evicted_objects_.fetch_add(1, std::memory_order_relaxed);
    return ChargeOfFile(info);
  }
  return 0;
}

Status ObjectTree::SweepTemps(Ledger::Guard& guard) {
  EMBERCACHE_ASSIGN_OR_RETURN(const TempSweep sweep, SweepTempFiles(fd(), kTempFolder));
  if (sweep.removed > 0) LOG_INFO("file store: half-written files removed: {}", sweep.removed);
  guard.page().pending_bytes = sweep.live_bytes;
  next_sweep_ = clock_->Now() + kSweepInterval;
  return Status::Ok();
}

Status ObjectTree::WalkShard(size_t shard, std::vector<Candidate>& oldest,
                             const CallContext& context) {
  const auto later = [](const Candidate& a, const Candidate& b) {
    return IsBefore(a.used, b.used);
  };
  EMBERCACHE_ASSIGN_OR_RETURN(Ledger::Guard guard, ledger_.Lock(context, *clock_));
  uint64_t bytes = 0;
  ObjectWalk walk(fd(), fmt::format("{:02x}", shard), "");
  while (true) {
    EMBERCACHE_ASSIGN_OR_RETURN(std::optional<WalkedObject> object, walk.Next());
    if (!object) break;
    if (IsExpired(object->info, limits_.ttl_s) && unlinkat(fd(), object->path.c_str(), 0) == 0) {
      continue;
    }
    bytes += ChargeOfFile(object->info);
    // A heap with the most recently used one on top, which the next older one replaces.
    oldest.push_back({std::move(object->path), object->info.st_atim});
    std::push_heap(oldest.begin(), oldest.end(), later);
    if (oldest.size() <= kMaxCandidates) continue;
    std::pop_heap(oldest.begin(), oldest.end(), later);
    oldest.pop_back();
  }
  guard.page().shard_bytes[shard] = bytes;
  return Status::Ok();
}

Status ObjectTree::Walk(const CallContext& context) {
  std::vector<Candidate> oldest;
  for (size_t shard = 0; shard < kShards; ++shard) {
    EMBERCACHE_RETURN_IF_ERROR(CheckCall(context, *clock_));
    EMBERCACHE_RETURN_IF_ERROR(WalkShard(shard, oldest, context));
  }
  std::sort(oldest.begin(), oldest.end(),
            [](const Candidate& a, const Candidate& b) { return IsBefore(b.used, a.used); });
  EMBERCACHE_ASSIGN_OR_RETURN(Ledger::Guard guard, ledger_.Lock(context, *clock_));
  EMBERCACHE_RETURN_IF_ERROR(SweepTemps(guard));
  guard.page().counted = 1;
  candidates_ = std::move(oldest);
  return Status::Ok();
}

}  // namespace embercache
