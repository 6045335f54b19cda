// Invariants:
// 1. `lru_` names each entry of `entries_` exactly once, the least recently used first.
// 2. `bytes_` is the sum of the entries' sizes, and at most `max_bytes_`.
// 3. An object does not change once it is in `entries_`; bytes are copied outside the lock, by
//    those who share the object's ownership.

#include "src/store/memory/memory_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "src/base/mutex.h"
#include "src/base/units.h"
#include "src/store/store_call.h"
#include "src/store/store_options.h"

namespace embercache {
namespace {

// What a get copies before it says so: it is still in a core's cache then, its source too.
constexpr size_t kPieceBytes = size_t{128} << 10;

struct Object {
  std::unique_ptr<std::byte[]> data;
  uint64_t bytes = 0;
  ObjectVersion version;
};
using ObjectRef = std::shared_ptr<Object>;

class MemoryStore final : public EmbeddingStore {
 public:
  MemoryStore(uint64_t max_bytes, const Clock* clock) : max_bytes_(max_bytes), clock_(clock) {}

  std::string_view name() const override { return "memory"; }

  std::vector<StatResult> BatchStat(std::span<const std::string_view> keys,
                                    const CallContext& context) override {
    return ForEach<StatResult>(keys, context, [this](std::string_view key) { return Stat(key); });
  }
  std::vector<GetResult> BatchGetIntoMultiBuffers(std::span<const GetItem> items,
                                                  const CallContext& context) override {
    return ForEach<GetResult>(items, context, [&](const GetItem& item) {
      return Get(item, static_cast<size_t>(&item - items.data()), context);
    });
  }
  std::vector<PutResult> BatchPutFromMultiBuffers(std::span<const PutItem> items,
                                                  const CallContext& context) override {
    return ForEach<PutResult>(items, context, [this](const PutItem& item) { return Put(item); });
  }
  std::vector<RemoveResult> BatchRemove(std::span<const RemoveItem> items,
                                        const CallContext& context) override {
    return ForEach<RemoveResult>(items, context,
                                 [this](const RemoveItem& item) { return Remove(item); });
  }

  Result<ListPage> List(std::string_view cursor, size_t limit, const CallContext& context) override;
  StoreHealth Health() override;
  std::string DescribeJson() const override;
  Status Close(TimePoint deadline) override;

 private:
  struct Entry {
    ObjectRef object;
    std::list<std::string_view>::iterator lru_place;
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  template <typename ResultType, typename Item, typename Call>
  std::vector<ResultType> ForEach(std::span<const Item> items, const CallContext& context,
                                  Call call) {
    return AnswerEach<ResultType>(items, context, *clock_, gate_, call);
  }

  StatResult Stat(std::string_view key);
  GetResult Get(const GetItem& item, size_t index, const CallContext& context);
  PutResult Put(const PutItem& item);
  RemoveResult Remove(const RemoveItem& item);

  // The object, made the most recently used; null when there is none.
  ObjectRef Find(std::string_view key) EXCLUDES(mutex_);
  void Erase(Entries::iterator entry) REQUIRES(mutex_);

  const uint64_t max_bytes_;
  const Clock* const clock_;
  CallGate gate_;
  mutable Mutex mutex_;
  Entries entries_ GUARDED_BY(mutex_);
  std::list<std::string_view> lru_ GUARDED_BY(mutex_);
  uint64_t bytes_ GUARDED_BY(mutex_) = 0;
  uint64_t last_version_ GUARDED_BY(mutex_) = 0;
};

ObjectRef MemoryStore::Find(std::string_view key) {
  MutexLock lock(mutex_);
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) return nullptr;
  lru_.splice(lru_.end(), lru_, entry->second.lru_place);
  return entry->second.object;
}

void MemoryStore::Erase(Entries::iterator entry) {
  bytes_ -= entry->second.object->bytes;
  lru_.erase(entry->second.lru_place);
  entries_.erase(entry);
}

StatResult MemoryStore::Stat(std::string_view key) {
  MutexLock lock(mutex_);
  StatResult result;
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) return result;
  result.found = true;
  result.bytes = entry->second.object->bytes;
  result.version = entry->second.object->version;
  return result;
}

GetResult MemoryStore::Get(const GetItem& item, size_t index, const CallContext& context) {
  GetResult result;
  const ObjectRef object = Find(item.key);
  if (object == nullptr) {
    result.outcome = GetOutcome::kMiss;
    return result;
  }
  result.bytes = object->bytes;
  result.version = object->version;
  if (TotalBytes(item.buffers) != object->bytes) {
    result.outcome = GetOutcome::kWrongSize;
    return result;
  }
  uint64_t copied = 0;
  for (MutableBuffer buffer : item.buffers) {
    while (!buffer.empty()) {
      const size_t bytes = std::min(buffer.size(), kPieceBytes - copied % kPieceBytes);
      std::memcpy(buffer.data(), object->data.get() + copied, bytes);
      buffer = buffer.subspan(bytes);
      copied += bytes;
      if (copied % kPieceBytes == 0) TellReceived(context, index, copied);
    }
  }
  TellReceived(context, index, copied);
  result.outcome = GetOutcome::kHit;
  return result;
}

PutResult MemoryStore::Put(const PutItem& item) {
  PutResult result;
  if (item.mode == PutMode::kIfAbsent && Find(item.key) != nullptr) {
    result.outcome = PutOutcome::kAlreadyPresent;
    return result;
  }
  ObjectRef object = std::make_shared<Object>();
  object->bytes = TotalBytes(item.buffers);
  if (object->bytes > max_bytes_) {
    result.status =
        Status::Invalid(fmt::format("an object of {} is larger than max_bytes, {}",
                                    FormatBytes(object->bytes), FormatBytes(max_bytes_)));
    return result;
  }
  object->data.reset(new (std::nothrow) std::byte[object->bytes]);
  if (object->data == nullptr) {
    result.status = Status::ResourceExhausted(
        fmt::format("no memory for an object of {}", FormatBytes(object->bytes)));
    return result;
  }
  std::byte* destination = object->data.get();
  for (const ConstBuffer& buffer : item.buffers) {
    if (!buffer.empty()) std::memcpy(destination, buffer.data(), buffer.size());
    destination += buffer.size();
  }

  MutexLock lock(mutex_);
  auto [entry, is_new] = entries_.try_emplace(std::string(item.key));
  if (is_new) {
    entry->second.lru_place = lru_.insert(lru_.end(), entry->first);
  } else if (item.mode == PutMode::kIfAbsent) {
    result.outcome = PutOutcome::kAlreadyPresent;
    return result;
  } else {
    bytes_ -= entry->second.object->bytes;
    lru_.splice(lru_.end(), lru_, entry->second.lru_place);
  }
  object->version.low = ++last_version_;
  bytes_ += object->bytes;
  entry->second.object.swap(object);  // the old one is freed after the lock
  // Ends before the new entry, which is the last one and fits alone.
  while (bytes_ > max_bytes_) Erase(entries_.find(lru_.front()));
  result.outcome = PutOutcome::kStored;
  return result;
}

RemoveResult MemoryStore::Remove(const RemoveItem& item) {
  RemoveResult result;
  MutexLock lock(mutex_);
  const auto entry = entries_.find(item.key);
  if (entry == entries_.end()) {
    result.outcome = RemoveOutcome::kAbsent;
  } else if (item.version && *item.version != entry->second.object->version) {
    result.outcome = RemoveOutcome::kChanged;
  } else {
    Erase(entry);
    result.outcome = RemoveOutcome::kRemoved;
  }
  return result;
}

Result<ListPage> MemoryStore::List(std::string_view cursor, size_t limit,
                                   const CallContext& context) {
  const CallGate::Pass pass = gate_.Enter();
  if (!pass) return CallGate::ClosedStatus();
  EMBERCACHE_RETURN_IF_ERROR(CheckCall(context, *clock_));
  EMBERCACHE_RETURN_IF_ERROR(CheckListLimit(limit));
  MutexLock lock(mutex_);
  ListPage page;
  auto entry = entries_.upper_bound(cursor);
  for (; entry != entries_.end() && page.objects.size() < limit; ++entry) {
    page.objects.push_back({entry->first, entry->second.object->bytes});
  }
  if (entry != entries_.end()) page.next_cursor = page.objects.back().id;
  return page;
}

StoreHealth MemoryStore::Health() {
  if (gate_.closed()) return {StoreState::kDown, "closed"};
  return {StoreState::kUp, "in this process's memory"};
}

std::string MemoryStore::DescribeJson() const {
  MutexLock lock(mutex_);
  return fmt::format(R"({{"objects":{},"bytes":{},"max_bytes":{}}})", entries_.size(), bytes_,
                     max_bytes_);
}

Status MemoryStore::Close(TimePoint deadline) {
  EMBERCACHE_RETURN_IF_ERROR(gate_.Close(deadline));
  MutexLock lock(mutex_);
  lru_.clear();
  entries_.clear();
  bytes_ = 0;
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<EmbeddingStore>> CreateMemoryStore(const StoreConfig& config) {
  uint64_t max_bytes = 1ULL << 30;
  StoreOptions options("memory", config.json);
  options.ReadBytes("max_bytes", &max_bytes);
  EMBERCACHE_RETURN_IF_ERROR(options.Finish());
  return std::unique_ptr<EmbeddingStore>(std::make_unique<MemoryStore>(max_bytes, config.clock));
}

}  // namespace embercache
