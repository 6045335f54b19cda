// Invariants:
// 1. A file under an object's name is whole and its bytes never change: it is written under a temp
//    name and gets its own by one rename or link. So gets take no lock.
// 2. Each call uses the folder that lies under the path then: one that was taken away is made
//    again, and what still runs on the old one fails.

#include "src/store/file/file_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "src/base/log.h"
#include "src/base/mutex.h"
#include "src/store/file/direct_reader.h"
#include "src/store/file/directory.h"
#include "src/store/file/io_error.h"
#include "src/store/file/object_io.h"
#include "src/store/file/object_name.h"
#include "src/store/file/object_times.h"
#include "src/store/file/object_tree.h"
#include "src/store/file/object_walk.h"
#include "src/store/file/write_backoff.h"
#include "src/store/store_call.h"
#include "src/store/store_options.h"

namespace embercache {
namespace {

struct FileStoreOptions {
  std::string dir;
  TreeLimits limits;
  bool fsync = false;
};

using TreeRef = std::shared_ptr<ObjectTree>;

class FileStore final : public EmbeddingStore {
 public:
  FileStore(FileStoreOptions options, const Clock* clock)
      : options_(std::move(options)), clock_(clock) {}

  // The folder alone, whose objects' times stay as they are.
  Status OpenToLook() {
    looks_ = true;
    return Tree().status();
  }
  // And proves that it can be written, and brings it within its budget.
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
  Duration TimeToLive() const override {
    const int64_t ttl_s = options_.limits.ttl_s;
    return ttl_s > 0 ? std::chrono::seconds(ttl_s) : Duration::max();
  }
  std::string DescribeJson() const override;
  Status Close(TimePoint deadline) override;

 private:
  struct OpenObject {
    UniqueFd fd;  // none when there is no object
    struct stat info = {};
  };

  StatResult Stat(std::string_view key);
  // Finds the object and sees whether it fits: a result that only lacks the bytes, or is final and
  // leaves `object` without a descriptor.
  GetResult Find(const GetItem& item, OpenObject* object);
  // Ends a get whose buffers were filled, or were not for the reason given.
  void EndGet(const Status& read, const OpenObject& object, GetResult* result) const;
  // At most DirectReader::kMaxReads items of a batch, from index `first` on.
  void GetSome(std::span<const GetItem> items, size_t first, const CallContext& context,
               std::span<GetResult> results);
  // At once, where there are several and an io_uring; else `done` hears that it has to read each.
  void ReadTogether(std::span<const DirectRead> reads, const CallContext& context,
                    const DirectReader::Done& done);
  PutResult Put(const PutItem& item, const CallContext& context);
  RemoveResult Remove(const RemoveItem& item, const CallContext& context);

  Result<OpenObject> Open(ObjectTree& tree, const std::string& path) const;
  Status Write(ObjectTree& tree, const PutItem& item, const std::string& path,
               const CallContext& context);
  Status WriteOnce(ObjectTree& tree, const PutItem& item, const std::string& path,
                   const CallContext& context);

  // Null where there is no io_uring.
  std::unique_ptr<DirectReader> TakeReader() EXCLUDES(mutex_);
  void GiveReader(std::unique_ptr<DirectReader> reader) EXCLUDES(mutex_);

  // The folder as it is now under its path; made again when somebody took it away.
  Result<TreeRef> Tree() EXCLUDES(mutex_);
  // What a call answers when the disk failed it: retryable, and naming the folder.
  Status Failure(const Status& status) const;
  void NotePut(const Status& status);

  const FileStoreOptions options_;
  bool looks_ = false;  // does not change once it is open
  const Clock* const clock_;
  CallGate gate_;
  WriteBackoff backoff_;
  LogLimiter log_limiter_;
  mutable Mutex mutex_;
  // Not in use: as many as calls were once at work together.
  std::vector<std::unique_ptr<DirectReader>> readers_ GUARDED_BY(mutex_);
  TreeRef tree_ GUARDED_BY(mutex_);
  struct stat root_info_ GUARDED_BY(mutex_) = {};
  Status root_trouble_ GUARDED_BY(mutex_);
};

Status FileStore::Failure(const Status& status) const {
  const StatusCode code = status.code();
  if (code == StatusCode::kDeadlineExceeded || code == StatusCode::kCancelled) return status;
  std::string message = fmt::format("file store {}: {}", options_.dir, status.message());
  if (code == StatusCode::kCorruption) return Status::Corruption(std::move(message));
  if (code == StatusCode::kResourceExhausted) return Status::ResourceExhausted(std::move(message));
  return Status::Unavailable(std::move(message));
}

Status FileStore::Start() {
  EMBERCACHE_ASSIGN_OR_RETURN(const TreeRef tree, Tree());
  const Status status = tree->Start();
  return status.ok() ? status : Failure(status);
}

Result<TreeRef> FileStore::Tree() {
  struct stat at_path = {};
  const bool there = stat(options_.dir.c_str(), &at_path) == 0;
  MutexLock lock(mutex_);
  if (there && tree_ != nullptr && at_path.st_dev == root_info_.st_dev &&
      at_path.st_ino == root_info_.st_ino) {
    root_trouble_ = Status::Ok();
    return tree_;
  }
  auto root = OpenOrMakeFolder(options_.dir);
  if (!root.ok() || fstat(root->get(), &root_info_) != 0) {
    root_trouble_ = Failure(root.ok() ? IoError(errno, "stat") : root.status());
    return root_trouble_;
  }
  root_trouble_ = Status::Ok();
  tree_ = std::make_shared<ObjectTree>(std::move(*root), options_.limits, clock_);
  return tree_;
}

std::vector<StatResult> FileStore::BatchStat(std::span<const std::string_view> keys,
                                             const CallContext& context) {
  return AnswerEach<StatResult>(keys, context, *clock_, gate_,
                                [this](std::string_view key) { return Stat(key); });
}

std::vector<GetResult> FileStore::BatchGetIntoMultiBuffers(std::span<const GetItem> items,
                                                           const CallContext& context) {
  std::vector<GetResult> results(items.size());
  const CallGate::Pass pass = gate_.Enter();
  for (size_t first = 0; first < items.size(); first += DirectReader::kMaxReads) {
    const size_t count = std::min(DirectReader::kMaxReads, items.size() - first);
    GetSome(items.subspan(first, count), first, context, std::span(results).subspan(first, count));
  }
  return results;
}

void FileStore::GetSome(std::span<const GetItem> items, size_t first, const CallContext& context,
                        std::span<GetResult> results) {
  std::vector<OpenObject> objects(items.size());
  std::vector<DirectRead> reads;
  const auto read_alone = [&](size_t i, IoWay way, GetResult* result) {
    const int fd = objects[i].fd.get();
    EndGet(ReadObject(fd, way, items[i], first + i, context, *clock_), objects[i], result);
  };
  const std::vector<GetResult> found =
      AnswerEach<GetResult>(items, context, *clock_, gate_, [&](const GetItem& item) {
        const auto i = static_cast<size_t>(&item - items.data());
        GetResult result = Find(item, &objects[i]);
        const int fd = objects[i].fd.get();
        if (fd < 0) return result;
        const IoWay way = PrepareRead(fd, item.buffers);
        if (way == IoWay::kDirect) {
          reads.push_back({fd, item.buffers, first + i});
        } else {
          read_alone(i, way, &result);
        }
        return result;
      });
  std::copy(found.begin(), found.end(), results.begin());
  ReadTogether(reads, context, [&](size_t read, bool filled) {
    const size_t i = reads[read].index - first;
    if (filled) {
      EndGet(Status::Ok(), objects[i], &results[i]);
    } else {
      read_alone(i, IoWay::kDirect, &results[i]);
    }
  });
}

void FileStore::ReadTogether(std::span<const DirectRead> reads, const CallContext& context,
                             const DirectReader::Done& done) {
  std::unique_ptr<DirectReader> reader = reads.size() > 1 ? TakeReader() : nullptr;
  if (reader == nullptr) {
    for (size_t i = 0; i < reads.size(); ++i) done(i, false);
    return;
  }
  reader->Read(reads, context, *clock_, done);
  if (!reader->broken()) GiveReader(std::move(reader));
}

std::vector<PutResult> FileStore::BatchPutFromMultiBuffers(std::span<const PutItem> items,
                                                           const CallContext& context) {
  return AnswerEach<PutResult>(items, context, *clock_, gate_,
                               [&](const PutItem& item) { return Put(item, context); });
}

std::vector<RemoveResult> FileStore::BatchRemove(std::span<const RemoveItem> items,
                                                 const CallContext& context) {
  return AnswerEach<RemoveResult>(items, context, *clock_, gate_,
                                  [&](const RemoveItem& item) { return Remove(item, context); });
}

StatResult FileStore::Stat(std::string_view key) {
  StatResult result;
  auto tree = Tree();
  if (!tree.ok()) {
    result.status = tree.status();
    return result;
  }
  const std::string path = ObjectPath(key);
  struct stat info = {};
  if (fstatat((*tree)->fd(), path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno != ENOENT) result.status = Failure(IoError(errno, "stat " + path));
    return result;
  }
  if (!S_ISREG(info.st_mode) || IsExpired(info, options_.limits.ttl_s)) return result;
  result.found = true;
  result.bytes = static_cast<uint64_t>(info.st_size);
  result.version = VersionOf(info);
  return result;
}

Result<FileStore::OpenObject> FileStore::Open(ObjectTree& tree, const std::string& path) const {
  // Whatever lies there, opening it must not wait (a FIFO would) nor leave the folder.
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  OpenObject object;
  // Of an owner's files alone.
  if (looks_) object.fd = UniqueFd(openat(tree.fd(), path.c_str(), kFlags | O_NOATIME));
  if (!object.fd.valid()) object.fd = UniqueFd(openat(tree.fd(), path.c_str(), kFlags));
  if (!object.fd.valid() || fstat(object.fd.get(), &object.info) != 0) {
    // A network file system says ESTALE of a file that another machine removed.
    if (errno == ENOENT || errno == ESTALE) return OpenObject();
    return Failure(IoError(errno, "open " + path));
  }
  if (!S_ISREG(object.info.st_mode)) {
    return Failure(Status::Unavailable(path + " is not a regular file"));
  }
  if (IsExpired(object.info, options_.limits.ttl_s)) return OpenObject();
  return object;
}

GetResult FileStore::Find(const GetItem& item, OpenObject* object) {
  GetResult result;
  auto tree = Tree();
  if (!tree.ok()) {
    result.status = tree.status();
    return result;
  }
  auto open = Open(**tree, ObjectPath(item.key));
  if (!open.ok()) {
    result.status = open.status();
    return result;
  }
  if (!open->fd.valid()) {
    result.outcome = GetOutcome::kMiss;
    return result;
  }
  result.bytes = static_cast<uint64_t>(open->info.st_size);
  result.version = VersionOf(open->info);
  if (TotalBytes(item.buffers) != result.bytes) {
    result.outcome = GetOutcome::kWrongSize;
    return result;
  }
  *object = *std::move(open);
  return result;
}

void FileStore::EndGet(const Status& read, const OpenObject& object, GetResult* result) const {
  if (!read.ok()) {
    result->status = Failure(read);
    return;
  }
  if (!looks_) TouchObject(object.fd.get(), object.info, /*refresh_age=*/false);
  result->outcome = GetOutcome::kHit;
}

std::unique_ptr<DirectReader> FileStore::TakeReader() {
  MutexLock lock(mutex_);
  if (readers_.empty()) {
    lock.Unlock();
    return DirectReader::Create();
  }
  std::unique_ptr<DirectReader> reader = std::move(readers_.back());
  readers_.pop_back();
  return reader;
}

void FileStore::GiveReader(std::unique_ptr<DirectReader> reader) {
  MutexLock lock(mutex_);
  readers_.push_back(std::move(reader));
}

PutResult FileStore::Put(const PutItem& item, const CallContext& context) {
  PutResult result;
  if (IsBareId(item.key)) {
    result.status = Status::Invalid(
        fmt::format("key '{}' has the form of an id that List gives; it can't be put", item.key));
    return result;
  }
  auto tree = Tree();
  if (!tree.ok()) {
    result.status = tree.status();
    return result;
  }
  const std::string path = ObjectPath(item.key);
  if (item.mode == PutMode::kIfAbsent) {
    if (auto object = Open(**tree, path); object.ok() && object->fd.valid()) {
      TouchObject(object->fd.get(), object->info, /*refresh_age=*/true);
      result.outcome = PutOutcome::kAlreadyPresent;
      return result;
    }
  }
  result.status = backoff_.Check(clock_->Now());
  if (!result.status.ok()) return result;
  const Status status = Write(**tree, item, path, context);
  if (status.code() == StatusCode::kInvalid) {
    result.status = status;
    return result;
  }
  if (status.code() == StatusCode::kAlreadyExists) {
    result.outcome = PutOutcome::kAlreadyPresent;
  } else if (status.ok()) {
    result.outcome = PutOutcome::kStored;
  } else {
    result.status = Failure(status);
  }
  NotePut(result.status);
  return result;
}

void FileStore::NotePut(const Status& status) {
  if (status.ok()) return backoff_.Succeeded();
  if (status.code() == StatusCode::kDeadlineExceeded || status.code() == StatusCode::kCancelled) {
    return;
  }
  const TimePoint now = clock_->Now();
  backoff_.Failed(status, now);
  if (const uint64_t failures = log_limiter_.Admit(now); failures > 0) {
    LOG_WARNING("puts that failed: {}, last: {}", failures, status.message());
  }
}

Status FileStore::Write(ObjectTree& tree, const PutItem& item, const std::string& path,
                        const CallContext& context) {
  Status status = WriteOnce(tree, item, path, context);
  if (status.code() != StatusCode::kResourceExhausted) return status;  // not a full disk
  const auto freed = tree.MakeSpace(ChargeOf(TotalBytes(item.buffers)), context);
  if (!freed.ok() || *freed == 0) return status;
  return WriteOnce(tree, item, path, context);
}

Status FileStore::WriteOnce(ObjectTree& tree, const PutItem& item, const std::string& path,
                            const CallContext& context) {
  EMBERCACHE_ASSIGN_OR_RETURN(ObjectTree::Pending object,
                              tree.Begin(TotalBytes(item.buffers), context));
  const TempFile& file = object.file();
  EMBERCACHE_RETURN_IF_ERROR(WriteObject(file.fd(), item.buffers, context, *clock_));
  EMBERCACHE_RETURN_IF_ERROR(StampNewObject(file.fd()));
  if (options_.fsync && fdatasync(file.fd()) != 0) return IoError(errno, "sync " + path);
  return tree.Commit(std::move(object), path, item.mode, context);
}

RemoveResult FileStore::Remove(const RemoveItem& item, const CallContext& context) {
  RemoveResult result;
  auto tree = Tree();
  if (!tree.ok()) {
    result.status = tree.status();
    return result;
  }
  const auto outcome = (*tree)->Remove(ObjectPath(item.key), item.version, context);
  if (outcome.ok()) {
    result.outcome = *outcome;
  } else {
    result.status = Failure(outcome.status());
  }
  return result;
}

Result<ListPage> FileStore::List(std::string_view cursor, size_t limit,
                                 const CallContext& context) {
  const CallGate::Pass pass = gate_.Enter();
  if (!pass) return CallGate::ClosedStatus();
  EMBERCACHE_RETURN_IF_ERROR(CheckListLimit(limit));
  EMBERCACHE_ASSIGN_OR_RETURN(const TreeRef tree, Tree());
  ListPage page;
  ObjectWalk walk(tree->fd(), "", cursor);
  while (true) {
    EMBERCACHE_RETURN_IF_ERROR(CheckCall(context, *clock_));
    auto object = walk.Next();
    if (!object.ok()) return Failure(object.status());
    if (!object->has_value()) {
      page.next_cursor.clear();
      return page;
    }
    const WalkedObject& found = **object;
    if (IsExpired(found.info, options_.limits.ttl_s)) continue;
    // One more than the page holds tells that there is more.
    if (page.objects.size() == limit) return page;
    page.objects.push_back({found.id, static_cast<uint64_t>(found.info.st_size)});
    page.next_cursor = found.path;
  }
}

StoreHealth FileStore::Health() {
  if (gate_.closed()) return {StoreState::kDown, "closed"};
  if (const Status trouble = backoff_.trouble(); !trouble.ok()) {
    return {StoreState::kDown, "puts fail: " + trouble.message()};
  }
  MutexLock lock(mutex_);
  if (!root_trouble_.ok()) return {StoreState::kDown, root_trouble_.message()};
  return {StoreState::kUp, "folder " + options_.dir};
}

std::string FileStore::DescribeJson() const {
  TreeRef tree;
  {
    MutexLock lock(mutex_);
    tree = tree_;
  }
  const nlohmann::json description = {{"dir", options_.dir},
                                      {"bytes", tree->used_bytes()},
                                      {"max_bytes", options_.limits.max_bytes},
                                      {"ttl_s", options_.limits.ttl_s},
                                      {"evicted_objects", tree->evicted_objects()}};
  return description.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Status FileStore::Close(TimePoint deadline) {
  return gate_.Close(deadline);
}

Result<FileStoreOptions> ReadOptions(const StoreConfig& config) {
  FileStoreOptions file;
  file.limits.max_bytes = 10ULL << 30;
  Duration ttl = Duration::zero();
  StoreOptions options("file", config.json);
  options.Read("dir", &file.dir);
  options.ReadBytes("max_bytes", &file.limits.max_bytes);
  options.ReadDuration("ttl", &ttl);
  options.Read("fsync", &file.fsync);
  EMBERCACHE_RETURN_IF_ERROR(options.Finish());
  if (file.dir.empty()) {
    return Status::Invalid("store backend 'file' needs the option 'dir', the folder to store in");
  }
  if (ttl > Duration::zero() && ttl < std::chrono::seconds(1)) {
    return Status::Invalid(
        "option 'ttl' of store backend 'file' has to be \"0s\" or at least \"1s\"");
  }
  file.limits.ttl_s = std::chrono::duration_cast<std::chrono::seconds>(ttl).count();
  return file;
}

}  // namespace

Result<std::unique_ptr<EmbeddingStore>> CreateFileStore(const StoreConfig& config) {
  EMBERCACHE_ASSIGN_OR_RETURN(FileStoreOptions options, ReadOptions(config));
  auto store = std::make_unique<FileStore>(std::move(options), config.clock);
  EMBERCACHE_RETURN_IF_ERROR(store->Start());
  return std::unique_ptr<EmbeddingStore>(std::move(store));
}

Result<std::unique_ptr<EmbeddingStore>> OpenFileStoreToLook(const StoreConfig& config) {
  EMBERCACHE_ASSIGN_OR_RETURN(FileStoreOptions options, ReadOptions(config));
  auto store = std::make_unique<FileStore>(std::move(options), config.clock);
  EMBERCACHE_RETURN_IF_ERROR(store->OpenToLook());
  return std::unique_ptr<EmbeddingStore>(std::move(store));
}

}  // namespace embercache
