// Invariants:
// 1. A file under an object's name is whole and never changes: it is written under a temp name and
//    gets its own by one rename or link.
// 2. The nanoseconds of a file's modification time are random, chosen at the put: with inode and
//    size they are the object's version. The seconds alone are its age.

#include "src/store/file/file_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "src/base/log.h"
#include "src/base/mutex.h"
#include "src/store/file/directory.h"
#include "src/store/file/object_io.h"
#include "src/store/file/object_name.h"
#include "src/store/file/object_walk.h"
#include "src/store/file/temp_file.h"
#include "src/store/store_call.h"
#include "src/store/store_options.h"

namespace embercache {
namespace {

// What is ours in the folder beside the objects.
constexpr char kTempFolder[] = ".embercache/tmp";

using RootRef = std::shared_ptr<const UniqueFd>;

ObjectVersion VersionOf(const struct stat& info) {
  const auto bytes = static_cast<uint64_t>(info.st_size);
  const auto nanoseconds = static_cast<uint64_t>(info.st_mtim.tv_nsec);  // below 2^30
  return {info.st_ino, (bytes << 30U) | nanoseconds};
}

// Ages the file to now, with a version of its own.
Status StampNewObject(int fd) {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  std::random_device random;
  const timespec times[2] = {now, {now.tv_sec, static_cast<long>(random() % 1'000'000'000U)}};
  return futimens(fd, times) == 0 ? Status::Ok() : Status::FromErrno(errno, "set times");
}

class FileStore final : public EmbeddingStore {
 public:
  FileStore(std::string dir, const Clock* clock) : dir_(std::move(dir)), clock_(clock) {}

  // Makes the folder, proves that it can be written, and removes what the dead left in it.
  Status Start();

  std::string_view name() const override { return "file"; }

  std::vector<StatResult> BatchStat(std::span<const std::string_view> keys,
                                    const CallContext& context) override;
  std::vector<GetResult> BatchGetIntoMultiBuffers(std::span<const GetItem> items,
                                                  const CallContext& context) override;
  std::vector<PutResult> BatchPutFromMultiBuffers(std::span<const PutItem> items,
                                                  const CallContext& context) override;
  std::vector<RemoveResult> BatchRemove(std::span<const RemoveItem> items,
                                        const CallContext& context) override;
  Result<ListPage> List(std::string_view cursor, size_t limit, const CallContext& context) override;
  StoreHealth Health() override;
  std::string DescribeJson() const override;
  Status Close(TimePoint deadline) override;

 private:
  StatResult Stat(std::string_view key);
  GetResult Get(const GetItem& item, const CallContext& context);
  PutResult Put(const PutItem& item, const CallContext& context);
  Status Write(int root_fd, const PutItem& item, const std::string& path,
               const CallContext& context);
  RemoveResult Remove(const RemoveItem& item);

  // The folder as it is now under its path; made again when somebody took it away.
  Result<RootRef> Root() EXCLUDES(mutex_);
  // Remembers for Health whether the folder works; names it in what failed.
  Status Note(Status status) EXCLUDES(mutex_);

  const std::string dir_;
  const Clock* const clock_;
  CallGate gate_;
  Mutex mutex_;
  RootRef root_ GUARDED_BY(mutex_);
  Status trouble_ GUARDED_BY(mutex_);  // of the last call that touched the disk
};

Status FileStore::Start() {
  EMBERCACHE_ASSIGN_OR_RETURN(const RootRef root, Root());
  const auto probe = TempFile::Create(root->get(), kTempFolder);
  if (!probe.ok()) return Note(probe.status());
  const auto removed = RemoveDeadTempFiles(root->get(), kTempFolder);
  if (!removed.ok()) return Note(removed.status());
  if (*removed > 0) LOG_INFO("file store {}: removed {} half-written files", dir_, *removed);
  return Status::Ok();
}

Status FileStore::Note(Status status) {
  MutexLock lock(mutex_);
  // Names that come and go under a call are the folder's trouble, not the caller's.
  const bool retryable =
      status.code() != StatusCode::kInvalid && status.code() != StatusCode::kCorruption;
  const StatusCode code =
      status.code() == StatusCode::kNotFound ? StatusCode::kUnavailable : status.code();
  trouble_ = status.ok() ? Status::Ok()
                         : Status(code, fmt::format("file store {}: {}", dir_, status.message()),
                                  retryable);
  return trouble_;
}

Result<RootRef> FileStore::Root() {
  struct stat at_path = {};
  const bool there = stat(dir_.c_str(), &at_path) == 0;
  {
    MutexLock lock(mutex_);
    struct stat opened = {};
    if (there && root_ != nullptr && fstat(root_->get(), &opened) == 0 &&
        opened.st_dev == at_path.st_dev && opened.st_ino == at_path.st_ino) {
      return root_;
    }
  }
  auto fd = OpenOrMakeFolder(dir_);
  if (!fd.ok()) return Note(fd.status());
  MutexLock lock(mutex_);
  root_ = std::make_shared<const UniqueFd>(std::move(*fd));
  return root_;
}

std::vector<StatResult> FileStore::BatchStat(std::span<const std::string_view> keys,
                                             const CallContext& context) {
  return AnswerEach<StatResult>(keys, context, *clock_, gate_,
                                [this](std::string_view key) { return Stat(key); });
}

std::vector<GetResult> FileStore::BatchGetIntoMultiBuffers(std::span<const GetItem> items,
                                                           const CallContext& context) {
  return AnswerEach<GetResult>(items, context, *clock_, gate_,
                               [&](const GetItem& item) { return Get(item, context); });
}

std::vector<PutResult> FileStore::BatchPutFromMultiBuffers(std::span<const PutItem> items,
                                                           const CallContext& context) {
  return AnswerEach<PutResult>(items, context, *clock_, gate_,
                               [&](const PutItem& item) { return Put(item, context); });
}

std::vector<RemoveResult> FileStore::BatchRemove(std::span<const RemoveItem> items,
                                                 const CallContext& context) {
  return AnswerEach<RemoveResult>(items, context, *clock_, gate_,
                                  [this](const RemoveItem& item) { return Remove(item); });
}

StatResult FileStore::Stat(std::string_view key) {
  StatResult result;
  auto root = Root();
  if (!root.ok()) {
    result.status = root.status();
    return result;
  }
  const std::string path = ObjectPath(key);
  struct stat info = {};
  if (fstatat((*root)->get(), path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno != ENOENT) result.status = Note(Status::FromErrno(errno, "stat " + path));
    return result;
  }
  result.found = S_ISREG(info.st_mode);
  result.bytes = static_cast<uint64_t>(info.st_size);
  result.version = VersionOf(info);
  return result;
}

GetResult FileStore::Get(const GetItem& item, const CallContext& context) {
  GetResult result;
  auto root = Root();
  if (!root.ok()) {
    result.status = root.status();
    return result;
  }
  const std::string path = ObjectPath(item.key);
  // Whatever lies there, opening it must not wait (a FIFO would) nor leave the folder.
  const UniqueFd fd(
      openat((*root)->get(), path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info = {};
  if (!fd.valid() || fstat(fd.get(), &info) != 0) {
    if (errno == ENOENT) {
      result.outcome = GetOutcome::kMiss;
    } else {
      result.status = Note(Status::FromErrno(errno, "open " + path));
    }
    return result;
  }
  if (!S_ISREG(info.st_mode)) {
    result.status = Note(Status::Unavailable(path + " is not a regular file"));
    return result;
  }
  result.bytes = static_cast<uint64_t>(info.st_size);
  result.version = VersionOf(info);
  if (TotalBytes(item.buffers) != result.bytes) {
    result.outcome = GetOutcome::kWrongSize;
    return result;
  }
  result.status = ReadObject(fd.get(), item.buffers, context, *clock_);
  if (result.status.ok()) result.outcome = GetOutcome::kHit;
  return result;
}

PutResult FileStore::Put(const PutItem& item, const CallContext& context) {
  PutResult result;
  if (IsBareId(item.key)) {
    result.status = Status::Invalid(
        fmt::format("key '{}' has the form of an id that List gives; it can't be put", item.key));
    return result;
  }
  auto root = Root();
  if (!root.ok()) {
    result.status = root.status();
    return result;
  }
  const std::string path = ObjectPath(item.key);
  struct stat info = {};
  if (item.mode == PutMode::kIfAbsent &&
      fstatat((*root)->get(), path.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
    result.outcome = PutOutcome::kAlreadyPresent;
    return result;
  }
  const Status status = Write((*root)->get(), item, path, context);
  if (status.ok()) {
    result.outcome = PutOutcome::kStored;
    static_cast<void>(Note(Status::Ok()));
  } else if (status.code() == StatusCode::kAlreadyExists) {
    result.outcome = PutOutcome::kAlreadyPresent;
  } else if (status.code() == StatusCode::kCancelled ||
             status.code() == StatusCode::kDeadlineExceeded) {
    result.status = status;
  } else {
    result.status = Note(status);
  }
  return result;
}

Status FileStore::Write(int root_fd, const PutItem& item, const std::string& path,
                        const CallContext& context) {
  EMBERCACHE_ASSIGN_OR_RETURN(TempFile file, TempFile::Create(root_fd, kTempFolder));
  EMBERCACHE_RETURN_IF_ERROR(WriteObject(file.fd(), item.buffers, context, *clock_));
  EMBERCACHE_RETURN_IF_ERROR(StampNewObject(file.fd()));
  return file.Publish(path, item.mode);
}

RemoveResult FileStore::Remove(const RemoveItem& item) {
  RemoveResult result;
  auto root = Root();
  if (!root.ok()) {
    result.status = root.status();
    return result;
  }
  const std::string path = ObjectPath(item.key);
  struct stat info = {};
  if (fstatat((*root)->get(), path.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && item.version &&
      *item.version != VersionOf(info)) {
    result.outcome = RemoveOutcome::kChanged;
  } else if (unlinkat((*root)->get(), path.c_str(), 0) == 0) {
    result.outcome = RemoveOutcome::kRemoved;
  } else if (errno == ENOENT) {
    result.outcome = RemoveOutcome::kAbsent;
  } else {
    result.status = Note(Status::FromErrno(errno, "remove " + path));
  }
  return result;
}

Result<ListPage> FileStore::List(std::string_view cursor, size_t limit,
                                 const CallContext& context) {
  const CallGate::Pass pass = gate_.Enter();
  if (!pass) return CallGate::ClosedStatus();
  EMBERCACHE_RETURN_IF_ERROR(CheckListLimit(limit));
  EMBERCACHE_ASSIGN_OR_RETURN(const RootRef root, Root());
  ListPage page;
  ObjectWalk walk((*root).get(), cursor);
  while (true) {
    EMBERCACHE_RETURN_IF_ERROR(CheckCall(context, *clock_));
    auto object = walk.Next();
    if (!object.ok()) return Note(object.status());
    if (!object->has_value()) {
      page.next_cursor.clear();
      return page;
    }
    // One more than the page holds tells that there is more.
    if (page.objects.size() == limit) return page;
    page.objects.push_back({(*object)->id, static_cast<uint64_t>((*object)->info.st_size)});
    page.next_cursor = (*object)->path;
  }
}

StoreHealth FileStore::Health() {
  if (gate_.closed()) return {StoreState::kDown, "closed"};
  MutexLock lock(mutex_);
  if (!trouble_.ok()) return {StoreState::kDown, trouble_.message()};
  return {StoreState::kUp, "folder " + dir_};
}

std::string FileStore::DescribeJson() const {
  return nlohmann::json{{"dir", dir_}}.dump(-1, ' ', false,
                                            nlohmann::json::error_handler_t::replace);
}

Status FileStore::Close(TimePoint deadline) {
  return gate_.Close(deadline);
}

}  // namespace

Result<std::unique_ptr<EmbeddingStore>> CreateFileStore(const StoreConfig& config) {
  std::string dir;
  StoreOptions options("file", config.json);
  options.Read("dir", &dir);
  EMBERCACHE_RETURN_IF_ERROR(options.Finish());
  if (dir.empty()) {
    return Status::Invalid("store backend 'file' needs the option 'dir', the folder to store in");
  }
  auto store = std::make_unique<FileStore>(std::move(dir), config.clock);
  EMBERCACHE_RETURN_IF_ERROR(store->Start());
  return std::unique_ptr<EmbeddingStore>(std::move(store));
}

}  // namespace embercache
