#include "src/store/redis/redis_store.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <new>
#include <utility>
#include <vector>

#include "src/store/redis/object_get.h"
#include "src/store/redis/object_list.h"
#include "src/store/redis/object_put.h"
#include "src/store/redis/stored_value.h"
#include "src/store/store_call.h"

namespace embercache {
namespace {

using redis::Client;
using redis::CommandWriter;
using redis::FoundHead;
using redis::Guarded;
using redis::HeadRead;
using redis::ObjectName;
using redis::RedisConfig;
using redis::Session;

// Operations on one key follow each other, in their order; the others go together.
template <typename Item>
std::vector<std::vector<size_t>> WavesOf(std::span<const Item> items,
                                         std::span<const size_t> open) {
  std::vector<std::vector<size_t>> waves;
  std::map<std::string_view, size_t> seen;
  for (const size_t i : open) {
    const size_t wave = seen[items[i].key]++;
    if (wave == waves.size()) waves.emplace_back();
    waves[wave].push_back(i);
  }
  return waves;
}

// Fills the results by `call`. Where memory runs out on the way, all of them say so, since what was
// done until then is not known.
template <typename ResultType, typename Call>
void FillResults(std::vector<ResultType>& results, Call call) {
  try {
    call();
  } catch (const std::bad_alloc&) {
    for (ResultType& result : results) {
      result = {};
      result.status = Status::Unavailable("no memory for the call");
    }
  }
}

class RedisStore final : public EmbeddingStore {
 public:
  RedisStore(RedisConfig config, std::unique_ptr<Client> client, const Clock& clock)
      : config_(std::move(config)), clock_(clock), client_(std::move(client)) {}

  std::string_view name() const override { return "redis"; }

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
  uint64_t Era() const override { return client_->lost_connections(); }
  Duration TimeToLive() const override {
    return config_.ttl > Duration::zero() ? config_.ttl : Duration::max();
  }
  std::string DescribeJson() const override;
  Status Close(TimePoint deadline) override;

 private:
  // The indexes of the items that can be served; the others' results say why not.
  template <typename Item, typename ResultType>
  std::vector<size_t> Admit(std::span<const Item> items, const CallContext& context,
                            const CallGate::Pass& pass, std::vector<ResultType>& results) const {
    const Status call = pass ? CheckCall(context, clock_) : CallGate::ClosedStatus();
    std::vector<size_t> admitted;
    for (size_t i = 0; i < items.size(); ++i) {
      Status status = call.ok() ? CheckKey(KeyOf(items[i])) : call;
      if (status.ok()) {
        admitted.push_back(i);
      } else {
        results[i].status = std::move(status);
      }
    }
    return admitted;
  }

  const RedisConfig config_;
  const Clock& clock_;
  CallGate gate_;
  const std::unique_ptr<Client> client_;
};

void StatEach(const Session& session, std::span<const std::string_view> keys,
              std::span<const size_t> open, std::vector<StatResult>& results) {
  std::vector<std::unique_ptr<HeadRead>> reads;
  for (const size_t i : open) reads.push_back(std::make_unique<HeadRead>(ObjectName(keys[i])));
  session.Run(reads);
  for (size_t i = 0; i < open.size(); ++i) {
    StatResult& result = results[open[i]];
    const FoundHead found = reads[i]->found();
    result.status = found.status();
    if (!found.ok() || !*found) continue;
    result.found = true;
    result.bytes = (*found)->object_bytes;
    result.version = (*found)->generation;
  }
}

std::vector<StatResult> RedisStore::BatchStat(std::span<const std::string_view> keys,
                                              const CallContext& context) {
  std::vector<StatResult> results(keys.size());
  const CallGate::Pass pass = gate_.Enter();
  FillResults(results, [&] {
    StatEach({*client_, config_, context}, keys, Admit(keys, context, pass, results), results);
  });
  return results;
}

std::vector<GetResult> RedisStore::BatchGetIntoMultiBuffers(std::span<const GetItem> items,
                                                            const CallContext& context) {
  std::vector<GetResult> results(items.size());
  const CallGate::Pass pass = gate_.Enter();
  FillResults(results, [&] {
    redis::GetObjects({*client_, config_, context}, items, Admit(items, context, pass, results),
                      results);
  });
  return results;
}

std::vector<PutResult> RedisStore::BatchPutFromMultiBuffers(std::span<const PutItem> items,
                                                            const CallContext& context) {
  std::vector<PutResult> results(items.size());
  const CallGate::Pass pass = gate_.Enter();
  FillResults(results, [&] {
    const std::vector<size_t> open = Admit(items, context, pass, results);
    for (const std::vector<size_t>& wave : WavesOf(items, open)) {
      redis::PutObjects({*client_, config_, context}, items, wave, results);
    }
  });
  return results;
}

// What one removal found, for its result.
struct Removal {
  std::optional<ObjectVersion> wanted;
  RemoveOutcome declined = RemoveOutcome::kAbsent;
  Status unreadable;

  bool Decide(const ObjectName& name, const FoundHead& found, CommandWriter& commands) {
    if (!found.ok() && found.status().code() != StatusCode::kCorruption) {
      unreadable = found.status();
      declined = RemoveOutcome::kFailed;
      return false;
    }
    const bool absent = found.ok() && !*found;
    const bool other = wanted && (!found.ok() || (!absent && (*found)->generation != *wanted));
    declined = absent ? RemoveOutcome::kAbsent : RemoveOutcome::kChanged;
    if (absent || other) return false;
    if (found.ok()) {
      AddUnlink(commands, name, **found);
    } else {
      commands.Add({"UNLINK", name.redis_key});
    }
    return true;
  }
};

void RemoveEach(const Session& session, std::span<const RemoveItem> items,
                std::span<const size_t> open, std::vector<RemoveResult>& results) {
  std::vector<Removal> removals(open.size());
  std::vector<std::unique_ptr<Guarded>> operations;
  for (size_t i = 0; i < open.size(); ++i) {
    removals[i].wanted = items[open[i]].version;
    ObjectName name(items[open[i]].key);
    operations.push_back(std::make_unique<Guarded>(
        name, 0, [name, &removal = removals[i]](const FoundHead& found, CommandWriter& commands) {
          return removal.Decide(name, found, commands);
        }));
  }
  RunGuarded(session, operations);
  for (size_t i = 0; i < open.size(); ++i) {
    RemoveResult& result = results[open[i]];
    if (operations[i]->outcome() == Guarded::Outcome::kDone) {
      result.outcome = RemoveOutcome::kRemoved;
    } else if (operations[i]->outcome() == Guarded::Outcome::kDeclined) {
      result.outcome = removals[i].declined;
      result.status = removals[i].unreadable;
      // The first answer was lost, and it was this call that removed it.
      const bool by_us = operations[i]->request.uncertain;
      if (result.outcome == RemoveOutcome::kAbsent && by_us) {
        result.outcome = RemoveOutcome::kRemoved;
      }
    } else {
      result.status = operations[i]->status();
    }
  }
}

std::vector<RemoveResult> RedisStore::BatchRemove(std::span<const RemoveItem> items,
                                                  const CallContext& context) {
  std::vector<RemoveResult> results(items.size());
  const CallGate::Pass pass = gate_.Enter();
  FillResults(results, [&] {
    const std::vector<size_t> open = Admit(items, context, pass, results);
    for (const std::vector<size_t>& wave : WavesOf(items, open)) {
      RemoveEach({*client_, config_, context}, items, wave, results);
    }
  });
  return results;
}

Result<ListPage> RedisStore::List(std::string_view cursor, size_t limit,
                                  const CallContext& context) {
  const CallGate::Pass pass = gate_.Enter();
  if (!pass) return CallGate::ClosedStatus();
  EMBERCACHE_RETURN_IF_ERROR(CheckCall(context, clock_));
  EMBERCACHE_RETURN_IF_ERROR(CheckListLimit(limit));
  try {
    return redis::ListObjects({*client_, config_, context}, cursor, limit);
  } catch (const std::bad_alloc&) {
    return Status::ResourceExhausted("no memory for a page of the list");
  }
}

StoreHealth RedisStore::Health() {
  if (gate_.closed()) return {StoreState::kDown, "closed"};
  return client_->state().health;
}

std::string RedisStore::DescribeJson() const {
  const redis::ClientState state = client_->state();
  nlohmann::json description = {
      {"backend", name()},
      {"url", config_.url},
      {"mode", state.cluster ? "cluster" : "standalone"},
      {"servers", state.servers},
      {"software", state.software},
      {"software_version", state.version},
      {"connections_a_server", config_.connections},
      {"ttl_s", std::chrono::duration<double>(config_.ttl).count()},
      {"max_value_bytes", config_.max_value_bytes},
  };
  // A user's name, or a host's, may be no UTF-8.
  return description.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Status RedisStore::Close(TimePoint deadline) {
  EMBERCACHE_RETURN_IF_ERROR(gate_.Close(deadline));
  client_->Stop();
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<EmbeddingStore>> CreateRedisStore(const StoreConfig& config) {
  EMBERCACHE_ASSIGN_OR_RETURN(RedisConfig parsed, RedisConfig::Parse(config.json));
  EMBERCACHE_ASSIGN_OR_RETURN(auto client, Client::Create(parsed, *config.clock));
  return std::unique_ptr<EmbeddingStore>(
      std::make_unique<RedisStore>(std::move(parsed), std::move(client), *config.clock));
}

}  // namespace embercache
