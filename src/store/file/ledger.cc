#include "src/store/file/ledger.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <numeric>
#include <thread>
#include <utility>

#include "src/store/file/directory.h"
#include "src/store/file/io_error.h"
#include "src/store/store_call.h"

namespace embercache {
namespace {

constexpr auto kLockPatience = std::chrono::seconds(5);

Status GaveUp(const CallContext& context, TimePoint give_up, const std::string& what) {
  if (give_up == context.deadline) {
    return Status::DeadlineExceeded("the call's deadline passed while " + what);
  }
  return Status::Unavailable(what);
}

bool SetFileLock(int fd, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

}  // namespace

uint64_t LedgerPage::total_bytes() const {
  return std::accumulate(shard_bytes.begin(), shard_bytes.end(), pending_bytes);
}

Ledger::Guard::Guard(Guard&& other) noexcept
    : ledger_(std::exchange(other.ledger_, nullptr)),
      page_(other.page_),
      to_close_(std::move(other.to_close_)) {}

void Ledger::Guard::Save() {
  // A page that can't be written is off until the next count of the shards.
  static_cast<void>(pwrite(ledger_->fd_.get(), &page_, sizeof page_, 0) == sizeof page_);
}

Ledger::Guard::~Guard() {
  if (ledger_ == nullptr) return;
  Save();
  ledger_->Unlock();
}

Result<Ledger::Guard> Ledger::Lock(const CallContext& context, const Clock& clock) {
  const TimePoint give_up = std::min(context.deadline, SteadyClock().Now() + kLockPatience);
  {
    MutexLock lock(mutex_);
    while (held_) {
      if (free_.WaitUntil(mutex_, give_up) || !held_) continue;
      return GaveUp(context, give_up, "other calls hold the lock of " + path_);
    }
    held_ = true;
  }
  Status status = OpenAndLock(context, clock, give_up);
  if (!status.ok()) {
    Unlock();
    return status;
  }
  Guard guard(this);
  guard.page_ = Read();
  return guard;
}

Status Ledger::OpenAndLock(const CallContext& context, const Clock& clock, TimePoint give_up) {
  constexpr int kAttempts = 4;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (!fd_.valid()) {
      fd_ = UniqueFd(openat(root_fd_, path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
      if (!fd_.valid() && errno != ENOENT) return IoError(errno, "open " + path_);
    }
    if (!fd_.valid()) {
      EMBERCACHE_RETURN_IF_ERROR(MakeFolders(root_fd_, path_.substr(0, path_.rfind('/'))));
      continue;
    }
    EMBERCACHE_RETURN_IF_ERROR(WaitForFileLock(context, clock, give_up));
    if (IsStillInPlace()) return Status::Ok();
    fd_ = UniqueFd();
  }
  return Status::Unavailable(fmt::format("{} keeps disappearing", path_));
}

// There is no timed wait for a file lock, and who holds it does so for microseconds.
Status Ledger::WaitForFileLock(const CallContext& context, const Clock& clock, TimePoint give_up) {
  auto pause = std::chrono::microseconds(10);
  while (!SetFileLock(fd_.get(), F_WRLCK)) {
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) {
      return IoError(errno, "lock " + path_);
    }
    EMBERCACHE_RETURN_IF_ERROR(CheckCall(context, clock));
    if (SteadyClock().Now() >= give_up) {
      return GaveUp(context, give_up, "another process holds the lock of " + path_);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(1000));
  }
  return Status::Ok();
}

bool Ledger::IsStillInPlace() const {
  struct stat opened = {};
  struct stat in_place = {};
  return fstat(fd_.get(), &opened) == 0 &&
         fstatat(root_fd_, path_.c_str(), &in_place, AT_SYMLINK_NOFOLLOW) == 0 &&
         opened.st_dev == in_place.st_dev && opened.st_ino == in_place.st_ino;
}

LedgerPage Ledger::Read() const {
  LedgerPage page;
  if (pread(fd_.get(), &page, sizeof page, 0) != sizeof page) return {};
  return page.magic == LedgerPage::kMagic ? page : LedgerPage();
}

void Ledger::Unlock() {
  if (fd_.valid()) SetFileLock(fd_.get(), F_UNLCK);
  MutexLock lock(mutex_);
  held_ = false;
  free_.NotifyOne();
}

uint64_t Ledger::PeekTotalBytes() const {
  const UniqueFd fd(openat(root_fd_, path_.c_str(), O_RDONLY | O_CLOEXEC));
  LedgerPage page;
  if (!fd.valid() || pread(fd.get(), &page, sizeof page, 0) != sizeof page) return 0;
  return page.magic == LedgerPage::kMagic ? page.total_bytes() : 0;
}

}  // namespace embercache
