// Invariants:
// 1. A batch function's caller waits for done, whatever the plugin does: items, buffers and results
//    live until then.
// 2. The plugin sees good keys and calls that are not over; it never sees a store that was closed.
// 3. Nothing that the plugin answers is believed beyond the values that its header names.

#include "src/store/plugin/plugin_store.h"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "src/base/mutex.h"
#include "src/store/plugin/plugin_library.h"
#include "src/store/store_call.h"
#include "src/store/store_options.h"

namespace embercache {
namespace {

using Message = char[EMBERCACHE_STORE_MESSAGE_BYTES];

std::string TextOf(const Message& message) {
  return std::string(message, strnlen(message, sizeof message));
}

embercache_bytes BytesOf(std::string_view text) {
  return {text.data(), text.size()};
}

Status StatusOf(int32_t code, std::string text, std::string_view what) {
  if (text.empty()) text = fmt::format("the plugin's {} failed with code {}", what, code);
  switch (code) {
    case EMBERCACHE_INVALID:
      return Status::Invalid(std::move(text));
    case EMBERCACHE_RESOURCE_EXHAUSTED:
      return Status::ResourceExhausted(std::move(text));
    case EMBERCACHE_UNAVAILABLE:
      return Status::Unavailable(std::move(text));
    case EMBERCACHE_DEADLINE_EXCEEDED:
      return Status::DeadlineExceeded(std::move(text));
    case EMBERCACHE_CANCELLED:
      return Status::Cancelled(std::move(text));
    case EMBERCACHE_UNIMPLEMENTED:
      return Status::Unimplemented(std::move(text));
    default:
      return Status::Internal(std::move(text));
  }
}

// Why an item that has not one of its operation's good outcomes failed.
Status FailureOf(const embercache_result& result, std::string_view what) {
  if (result.outcome == EMBERCACHE_FAILED) {
    return StatusOf(result.code, TextOf(result.message), what);
  }
  return Status::Internal(fmt::format("the plugin's {} answers outcome {}, which it cannot have",
                                      what, result.outcome));
}

// A batch on its way: waits for done.
struct BatchCall : embercache_batch {
  explicit BatchCall(const CallContext& limits) : embercache_batch(), context(limits) {
    deadline_ns = context.deadline == TimePoint::max()
                      ? INT64_MAX
                      : context.deadline.time_since_epoch().count();
    cancelled = [](const embercache_batch* self) {
      const auto* flag = static_cast<const BatchCall*>(self)->context.cancelled;
      return flag != nullptr && flag->load(std::memory_order_relaxed) ? 1 : 0;
    };
    done = [](const embercache_batch* self) { static_cast<const BatchCall*>(self)->End(); };
  }

  void End() const EXCLUDES(mutex) {
    MutexLock lock(mutex);
    is_done = true;
    ended.NotifyOne();
  }
  void Wait() EXCLUDES(mutex) {
    MutexLock lock(mutex);
    while (!is_done) ended.Wait(mutex);
  }

  const CallContext& context;
  mutable Mutex mutex;
  mutable CondVar ended;
  mutable bool is_done GUARDED_BY(mutex) = false;
};

class PluginStore final : public EmbeddingStore {
 public:
  PluginStore(std::string path, const embercache_store_plugin_table& plugin, void* store,
              const Clock* clock)
      : path_(std::move(path)), plugin_(plugin), store_(store), clock_(clock) {}
  // A store whose calls hang is left to them.
  ~PluginStore() override { static_cast<void>(Close(clock_->Now())); }

  std::string_view name() const override { return "plugin"; }

  std::vector<StatResult> BatchStat(std::span<const std::string_view> keys,
                                    const CallContext& context) override;
  std::vector<GetResult> BatchGetIntoMultiBuffers(std::span<const GetItem> items,
                                                  const CallContext& context) override;
  std::vector<PutResult> BatchPutFromMultiBuffers(std::span<const PutItem> items,
                                                  const CallContext& context) override;
  std::vector<RemoveResult> BatchRemove(std::span<const RemoveItem> items,
                                        const CallContext& context) override;
  Result<ListPage> List(std::string_view cursor, size_t limit, const CallContext& context) override;
  Status RegisterBuffer(const BufferRegion& region) override;
  Status UnregisterBuffer(const BufferRegion& region) override;
  StoreHealth Health() override;
  std::string DescribeJson() const override;
  Status Close(TimePoint deadline) override;

 private:
  // Passes the good items on, as `convert` makes the plugin's form of them, to `function`, and
  // makes a result of each with `read(item, plugin's result)`. The others are answered here.
  template <typename ResultType, typename Item, typename PluginItem, typename Convert,
            typename Read>
  std::vector<ResultType> CallBatch(std::span<const Item> items, const CallContext& context,
                                    void (*function)(void*, const PluginItem*, embercache_result*,
                                                     size_t, const embercache_batch*),
                                    Convert convert, Read read);
  std::optional<ObjectVersion> VersionOf(const embercache_result& result) const;

  const std::string path_;
  const embercache_store_plugin_table plugin_;
  void* const store_;
  const Clock* const clock_;
  CallGate gate_;
  Mutex mutex_;
  bool is_freed_ GUARDED_BY(mutex_) = false;
};

template <typename ResultType, typename Item, typename PluginItem, typename Convert, typename Read>
std::vector<ResultType> PluginStore::CallBatch(
    std::span<const Item> items, const CallContext& context,
    void (*function)(void*, const PluginItem*, embercache_result*, size_t, const embercache_batch*),
    Convert convert, Read read) {
  std::vector<ResultType> results(items.size());
  const CallGate::Pass pass = gate_.Enter();
  const Status refusal = pass ? CheckCall(context, *clock_) : CallGate::ClosedStatus();
  std::vector<PluginItem> passed;
  std::vector<size_t> indices;
  for (size_t i = 0; i < items.size(); ++i) {
    results[i].status = refusal.ok() ? CheckKey(KeyOf(items[i])) : refusal;
    if (!results[i].status.ok()) continue;
    passed.push_back(convert(items[i]));
    indices.push_back(i);
  }
  if (passed.empty()) return results;

  std::vector<embercache_result> answers(passed.size(), embercache_result{});
  BatchCall call(context);
  try {
    function(store_, passed.data(), answers.data(), passed.size(), &call);
    call.Wait();
  } catch (const std::exception& error) {
    for (const size_t i : indices) {
      results[i].status = Status::Internal(fmt::format("the plugin threw: {}", error.what()));
    }
    return results;
  }
  for (size_t j = 0; j < indices.size(); ++j) {
    results[indices[j]] = read(items[indices[j]], answers[j]);
  }
  return results;
}

std::optional<ObjectVersion> PluginStore::VersionOf(const embercache_result& result) const {
  if ((plugin_.flags & EMBERCACHE_STORE_VERSIONS) == 0) return std::nullopt;
  return ObjectVersion{result.version.high, result.version.low};
}

std::vector<StatResult> PluginStore::BatchStat(std::span<const std::string_view> keys,
                                               const CallContext& context) {
  return CallBatch<StatResult>(
      keys, context, plugin_.stat, [](std::string_view key) { return BytesOf(key); },
      [this](std::string_view /*key*/, const embercache_result& answer) {
        StatResult result;
        if (answer.outcome == EMBERCACHE_HIT) {
          result.found = true;
          result.bytes = answer.bytes;
          result.version = VersionOf(answer);
        } else if (answer.outcome != EMBERCACHE_MISS) {
          result.status = FailureOf(answer, "stat");
        }
        return result;
      });
}

std::vector<GetResult> PluginStore::BatchGetIntoMultiBuffers(std::span<const GetItem> items,
                                                             const CallContext& context) {
  std::vector<std::vector<embercache_memory>> buffers;
  buffers.reserve(items.size());
  return CallBatch<GetResult>(
      items, context, plugin_.get,
      [&](const GetItem& item) {
        auto& parts = buffers.emplace_back();
        for (const MutableBuffer& buffer : item.buffers) {
          parts.push_back({buffer.data(), buffer.size()});
        }
        return embercache_get_item{BytesOf(item.key), parts.data(), parts.size()};
      },
      [this](const GetItem& item, const embercache_result& answer) {
        GetResult result;
        const uint64_t asked = TotalBytes(item.buffers);
        if (answer.outcome == EMBERCACHE_MISS) {
          result.outcome = GetOutcome::kMiss;
        } else if (answer.outcome == EMBERCACHE_WRONG_SIZE) {
          result.outcome = GetOutcome::kWrongSize;
          result.bytes = answer.bytes;
        } else if (answer.outcome != EMBERCACHE_HIT) {
          result.status = FailureOf(answer, "get");
        } else if (answer.bytes != asked) {
          result.status = Status::Internal(
              fmt::format("the plugin's get says it filled {} bytes of {}", answer.bytes, asked));
        } else {
          result.outcome = GetOutcome::kHit;
          result.bytes = answer.bytes;
          result.version = VersionOf(answer);
        }
        return result;
      });
}

std::vector<PutResult> PluginStore::BatchPutFromMultiBuffers(std::span<const PutItem> items,
                                                             const CallContext& context) {
  std::vector<std::vector<embercache_bytes>> buffers;
  buffers.reserve(items.size());
  return CallBatch<PutResult>(
      items, context, plugin_.put,
      [&](const PutItem& item) {
        auto& parts = buffers.emplace_back();
        for (const ConstBuffer& buffer : item.buffers) {
          parts.push_back({buffer.data(), buffer.size()});
        }
        return embercache_put_item{BytesOf(item.key), parts.data(), parts.size(),
                                   item.mode == PutMode::kReplace ? 1 : 0};
      },
      [](const PutItem& /*item*/, const embercache_result& answer) {
        PutResult result;
        if (answer.outcome == EMBERCACHE_STORED) {
          result.outcome = PutOutcome::kStored;
        } else if (answer.outcome == EMBERCACHE_PRESENT) {
          result.outcome = PutOutcome::kAlreadyPresent;
        } else if (answer.outcome == EMBERCACHE_ACCEPTED) {
          result.outcome = PutOutcome::kAccepted;
        } else {
          result.status = FailureOf(answer, "put");
        }
        return result;
      });
}

std::vector<RemoveResult> PluginStore::BatchRemove(std::span<const RemoveItem> items,
                                                   const CallContext& context) {
  return CallBatch<RemoveResult>(
      items, context, plugin_.remove,
      [](const RemoveItem& item) {
        const ObjectVersion version = item.version.value_or(ObjectVersion());
        return embercache_remove_item{
            BytesOf(item.key), item.version ? 1 : 0, {version.high, version.low}};
      },
      [](const RemoveItem& /*item*/, const embercache_result& answer) {
        RemoveResult result;
        if (answer.outcome == EMBERCACHE_REMOVED) {
          result.outcome = RemoveOutcome::kRemoved;
        } else if (answer.outcome == EMBERCACHE_MISS) {
          result.outcome = RemoveOutcome::kAbsent;
        } else if (answer.outcome == EMBERCACHE_CHANGED) {
          result.outcome = RemoveOutcome::kChanged;
        } else {
          result.status = FailureOf(answer, "remove");
        }
        return result;
      });
}

Result<ListPage> PluginStore::List(std::string_view cursor, size_t limit,
                                   const CallContext& context) {
  const CallGate::Pass pass = gate_.Enter();
  if (!pass) return CallGate::ClosedStatus();
  EMBERCACHE_RETURN_IF_ERROR(CheckListLimit(limit));
  if (plugin_.list == nullptr) return EmbeddingStore::List(cursor, limit, context);
  struct Taking {
    ListPage page;
    size_t limit;
    const CallContext& context;
    const Clock& clock;
    std::string last_cursor;
    Status status;
  };
  Taking taking{{}, limit, context, *clock_, {}, CheckCall(context, *clock_)};
  EMBERCACHE_RETURN_IF_ERROR(taking.status);
  const auto take = [](void* self, embercache_bytes id, uint64_t bytes, embercache_bytes behind) {
    auto& to = *static_cast<Taking*>(self);
    to.status = CheckCall(to.context, to.clock);
    if (!to.status.ok()) return 0;
    if (to.page.objects.size() == to.limit) {
      to.page.next_cursor = to.last_cursor;
      return 0;
    }
    to.page.objects.push_back({{static_cast<const char*>(id.data), id.size}, bytes});
    to.last_cursor.assign(static_cast<const char*>(behind.data), behind.size);
    return 1;
  };
  Message message = "";
  const int32_t code = plugin_.list(store_, BytesOf(cursor), take, &taking, message);
  EMBERCACHE_RETURN_IF_ERROR(taking.status);
  if (code != EMBERCACHE_OK) return StatusOf(code, TextOf(message), "list");
  return std::move(taking.page);
}

Status PluginStore::RegisterBuffer(const BufferRegion& region) {
  const CallGate::Pass pass = gate_.Enter();
  if (!pass) return CallGate::ClosedStatus();
  if (plugin_.register_memory == nullptr) return Status::Ok();
  const int32_t code = plugin_.register_memory(store_, {region.memory.data(), region.memory.size()},
                                               region.fd, region.fd_offset);
  return code == EMBERCACHE_OK ? Status::Ok() : StatusOf(code, "", "register_memory");
}

Status PluginStore::UnregisterBuffer(const BufferRegion& region) {
  const CallGate::Pass pass = gate_.Enter();
  if (!pass) return CallGate::ClosedStatus();
  if (plugin_.unregister_memory == nullptr) return Status::Ok();
  const int32_t code =
      plugin_.unregister_memory(store_, {region.memory.data(), region.memory.size()});
  return code == EMBERCACHE_OK ? Status::Ok() : StatusOf(code, "", "unregister_memory");
}

StoreHealth PluginStore::Health() {
  const CallGate::Pass pass = gate_.Enter();
  if (!pass) return {StoreState::kDown, "closed"};
  if (plugin_.health == nullptr) return {StoreState::kUp, "plugin " + path_};
  Message message = "";
  const int32_t state = plugin_.health(store_, message);
  return {state > 0    ? StoreState::kUp
          : state == 0 ? StoreState::kDown
                       : StoreState::kStarting,
          TextOf(message)};
}

std::string PluginStore::DescribeJson() const {
  return nlohmann::json{{"path", path_}}.dump(-1, ' ', false,
                                              nlohmann::json::error_handler_t::replace);
}

Status PluginStore::Close(TimePoint deadline) {
  EMBERCACHE_RETURN_IF_ERROR(gate_.Close(deadline));
  MutexLock lock(mutex_);
  if (!std::exchange(is_freed_, true)) plugin_.close(store_);
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<EmbeddingStore>> CreatePluginStore(const StoreConfig& config) {
  std::string path;
  std::string plugin_config = "{}";
  StoreOptions options("plugin", config.json);
  options.Read("path", &path);
  options.ReadObject("config", &plugin_config);
  EMBERCACHE_RETURN_IF_ERROR(options.Finish());
  if (path.empty()) {
    return Status::Invalid(
        "store backend 'plugin' needs the option 'path', the plugin's shared object");
  }
  EMBERCACHE_ASSIGN_OR_RETURN(const embercache_store_plugin_table plugin, LoadStorePlugin(path));
  void* store = nullptr;
  Message message = "";
  const int32_t code = plugin.open(plugin_config.c_str(), &store, message);
  if (code != EMBERCACHE_OK) {
    const Status why = StatusOf(code, TextOf(message), "open");
    return Status(why.code(), fmt::format("store plugin '{}': {}", path, why.message()),
                  why.retryable());
  }
  if (store == nullptr) {
    return Status::Internal(fmt::format("store plugin '{}' opens no store and no error", path));
  }
  return std::unique_ptr<EmbeddingStore>(
      std::make_unique<PluginStore>(std::move(path), plugin, store, config.clock));
}

}  // namespace embercache
