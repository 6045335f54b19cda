#include "src/store/mooncake/mooncake_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "src/base/log.h"
#include "src/store/mooncake/mooncake_config.h"
#include "src/store/mooncake/session.h"
#include "src/store/mooncake/supervisor.h"
#include "src/store/raw_format.h"
#include "src/store/redacted_options.h"
#include "src/store/store_call.h"

namespace embercache {
namespace {

using mooncake::KeyLocks;
using mooncake::MooncakeConfig;
using mooncake::Op;
using mooncake::Session;
using mooncake::Supervisor;

// A bridge process is gone at once.
constexpr Duration kStopAllowance = std::chrono::seconds(1);

class MooncakeStore : public EmbeddingStore {
 public:
  MooncakeStore(MooncakeConfig config, std::unique_ptr<Supervisor> supervisor, const Clock& clock)
      : config_(std::move(config)), clock_(clock), supervisor_(std::move(supervisor)) {}

  std::string_view name() const override { return "mooncake"; }

  std::vector<StatResult> BatchIsExist(std::span<const std::string_view> keys,
                                       const CallContext& context) override {
    return Stat(Op::kExist, keys, context);
  }
  std::vector<StatResult> BatchStat(std::span<const std::string_view> keys,
                                    const CallContext& context) override {
    return Stat(Op::kSize, keys, context);
  }
  std::vector<GetResult> BatchGetIntoMultiBuffers(std::span<const GetItem> items,
                                                  const CallContext& context) override {
    return Call<GetResult>(items, context,
                           [&](const Session& session, const auto& open, auto& results) {
                             GetObjects(session, items, open, results);
                           });
  }
  std::vector<PutResult> BatchPutFromMultiBuffers(std::span<const PutItem> items,
                                                  const CallContext& context) override;
  std::vector<RemoveResult> BatchRemove(std::span<const RemoveItem> items,
                                        const CallContext& context) override {
    return Call<RemoveResult>(items, context,
                              [&](const Session& session, const auto& open, auto& results) {
                                RemoveObjects(session, items, open, results);
                              });
  }

  Status RegisterBuffer(const BufferRegion& region) override;
  Status UnregisterBuffer(const BufferRegion& region) override;
  StoreHealth Health() override;
  std::string DescribeJson() const override;
  uint64_t Era() const override { return supervisor_->era(); }
  Status Close(TimePoint deadline) override;

 private:
  // Checks the items, and hands the good ones to `run(session, their indexes, results)`, in waves
  // in which no key comes twice: a client mixes up the buffers of one key.
  template <typename ResultType, typename Item, typename Run>
  std::vector<ResultType> Call(std::span<const Item> items, const CallContext& context, Run run);
  std::vector<StatResult> Stat(Op op, std::span<const std::string_view> keys,
                               const CallContext& context) {
    return Call<StatResult>(keys, context,
                            [&](const Session& session, const auto& open, auto& results) {
                              StatObjects(session, op, keys, open, results);
                            });
  }

  const MooncakeConfig config_;
  const Clock& clock_;
  KeyLocks key_locks_;
  const std::unique_ptr<Supervisor> supervisor_;
  CallGate gate_;
};

class RawMooncakeStore final : public MooncakeStore, public RawFormat {
 public:
  using MooncakeStore::MooncakeStore;
};

template <typename ResultType, typename Item, typename Run>
std::vector<ResultType> MooncakeStore::Call(std::span<const Item> items, const CallContext& context,
                                            Run run) {
  std::vector<ResultType> results(items.size());
  const CallGate::Pass pass = gate_.Enter();
  const Session session{*supervisor_, key_locks_, clock_, gate_, context};
  std::vector<std::vector<size_t>> waves;
  std::map<std::string_view, size_t> seen;
  for (size_t i = 0; i < items.size(); ++i) {
    results[i].status = pass ? CheckKey(KeyOf(items[i])) : CallGate::ClosedStatus();
    if (!results[i].status.ok()) continue;
    const size_t wave = seen[KeyOf(items[i])]++;
    if (wave == waves.size()) waves.emplace_back();
    waves[wave].push_back(i);
  }
  for (const std::vector<size_t>& wave : waves) {
    const Status status = CheckCall(context, clock_);
    if (status.ok()) {
      run(session, wave, results);
    } else {
      for (const size_t i : wave) results[i].status = status;
    }
  }
  return results;
}

std::vector<PutResult> MooncakeStore::BatchPutFromMultiBuffers(std::span<const PutItem> items,
                                                               const CallContext& context) {
  return Call<PutResult>(items, context,
                         [&](const Session& session, const auto& open, auto& results) {
                           PutObjects(session, items, open, results);
                         });
}

Status MooncakeStore::RegisterBuffer(const BufferRegion& region) {
  const CallGate::Pass pass = gate_.Enter();
  if (!pass) return CallGate::ClosedStatus();
  // Memory that cannot be shared goes by the bounce area.
  return region.fd < 0 ? Status::Ok() : supervisor_->AddRegion(region);
}

Status MooncakeStore::UnregisterBuffer(const BufferRegion& region) {
  supervisor_->RemoveRegion(region);
  return Status::Ok();
}

StoreHealth MooncakeStore::Health() {
  if (gate_.closed()) return {StoreState::kDown, "closed"};
  return supervisor_->health();
}

std::string MooncakeStore::DescribeJson() const {
  const mooncake::InUse in_use = supervisor_->in_use();
  const StoreHealth health = supervisor_->health();
  nlohmann::json description = {
      {"backend", name()},
      {"bridge", mooncake::NameOf(in_use.way)},
      {"client", in_use.library},
      {"format", config_.raw ? "raw" : "envelope"},
      {"bridge_pid", in_use.pid},
      {"bridge_starts", in_use.starts},
      {"protocol", config_.protocol},
      {"device_name", config_.device_name},
      {"master_server_address", WithoutUser(config_.master_server_address)},
      {"metadata_server", WithoutUser(config_.metadata_server)},
      {"detail", health.detail},
  };
  return description.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Status MooncakeStore::Close(TimePoint deadline) {
  const Status closed = gate_.Close(deadline);
  // What still waits for the bridge ends with it.
  const bool stopped = supervisor_->Stop(std::max(deadline, clock_.Now() + kStopAllowance));
  if (!closed.ok() || stopped) return closed;
  return Status::DeadlineExceeded("the Mooncake client in this process does not end");
}

}  // namespace

Result<std::unique_ptr<EmbeddingStore>> CreateMooncakeStore(const StoreConfig& config) {
  EMBERCACHE_ASSIGN_OR_RETURN(MooncakeConfig parsed, MooncakeConfig::Parse(config.json));
  for (const std::string& ignored : parsed.ignored) {
    LOG_INFO("mooncake: {} is ignored: a client here owns no segment, and runs by itself", ignored);
  }
  EMBERCACHE_ASSIGN_OR_RETURN(auto supervisor, Supervisor::Start(parsed));
  std::unique_ptr<EmbeddingStore> store;
  if (!parsed.raw) {
    store =
        std::make_unique<MooncakeStore>(std::move(parsed), std::move(supervisor), *config.clock);
    return store;
  }
  LOG_WARNING(
      "mooncake: format raw: of what is read the length alone is checked: not whose it is, of "
      "which "
      "model, dtype or width, nor whether it is whole");
  store =
      std::make_unique<RawMooncakeStore>(std::move(parsed), std::move(supervisor), *config.clock);
  return store;
}

}  // namespace embercache
