#include "tests/simulation/sim_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/cache/host_cache.h"

namespace embercache::simulation {

using std::chrono::milliseconds;

// One look-up on its way: until all items are answered and all that was led is computed.
struct SimNode::Flight {
  LifePtr life;
  uint64_t number = 0;
  std::vector<Media> items;
  std::vector<bool> answered;
  TimePoint deadline;
  TimePoint wait_deadline;
  size_t unanswered = 0;
  size_t computing = 0;
  int tries_left = 0;
  std::vector<Media> again;
};

SimNode::SimNode(World& world, SimStore& store, std::string name, ControllerOptions options)
    : world_(world), store_(store), name_(std::move(name)), options_(std::move(options)) {
  Start();
}

void SimNode::Fail(const std::string& what) {
  world_.Fail(fmt::format("{} at {} ms: {}", name_,
                          world_.scheduler->Now().time_since_epoch() / milliseconds(1), what));
}

void SimNode::Start() {
  ControllerParts parts;
  parts.store = store_.Connect();
  parts.get_executor = world_.scheduler;
  parts.put_executor = world_.scheduler;
  parts.timer = world_.scheduler;
  parts.clock = world_.scheduler.get();
  Result<std::unique_ptr<EmbeddingCacheController>> created =
      EmbeddingCacheController::Create(options_, std::move(parts));
  if (!created.ok()) return Fail(created.status().ToString());
  life_ = std::make_shared<Life>();
  life_->controller = std::move(created).value();
  const HostCache& cache = life_->controller->host_cache();
  for (uint32_t i = 0; i < cache.num_pools(); ++i) world_.pools.push_back(cache.pool(i));
}

void SimNode::Stop() {
  if (!life_->controller) return;
  (void)life_->controller->Close(world_.scheduler->Now());
  life_->controller.reset();
}

void SimNode::Restart() {
  ++world_.counts["restart"];
  Stop();
  Start();
}

std::vector<Media> SimNode::SomeItems() {
  Random& random = world_.random;
  std::vector<Media> items;
  for (uint64_t left = 1 + random.Below(4); left > 0; --left) {
    // Low numbers are asked for most.
    const uint64_t end = 1 + random.Below(world_.media.size());
    items.push_back(world_.media[random.Below(end)]);
  }
  return items;
}

void SimNode::Act() {
  if (!life_->controller) return;
  const uint64_t action = world_.random.Below(100);
  if (action < 70) return Request(SomeItems(), 2);
  if (action < 82) return Prefetch(SomeItems());
  if (action < 90) return Insert(SomeItems());
  if (action < 96) return AskWhetherExist(SomeItems());
  Remove(SomeItems().front());
}

void SimNode::Request(std::span<const Media> items, int tries_left) {
  Random& random = world_.random;
  auto flight = std::make_shared<Flight>();
  flight->life = life_;
  flight->number = ++life_->last_flight;
  flight->items.assign(items.begin(), items.end());
  flight->answered.resize(items.size());
  flight->unanswered = items.size();
  flight->tries_left = tries_left;
  flight->deadline = world_.scheduler->Now() + random.Between(milliseconds(10), milliseconds(500));
  flight->wait_deadline =
      random.Chance(0.5) ? flight->deadline
                         : flight->deadline + random.Between(milliseconds(0), milliseconds(500));
  std::vector<LookupItem> asked;
  for (const Media& media : items) {
    asked.push_back({media.key, random.Chance(0.5) ? static_cast<int64_t>(media.tokens) : -1});
  }
  life_->controller->Lookup(SimSpec(), asked, flight->deadline, flight->wait_deadline,
                            [this, flight](size_t index, LookupAnswer answer) {
                              Take(flight, index, std::move(answer));
                            });
  const TimePoint last = std::max(flight->deadline, flight->wait_deadline);
  (void)world_.scheduler->Schedule(last + Duration(1), [this, flight] {
    if (flight->unanswered > 0) Fail(fmt::format("{} items without an answer", flight->unanswered));
  });
}

void SimNode::Take(const FlightPtr& flight, size_t index, LookupAnswer answer) {
  const Media& media = flight->items[index];
  if (flight->answered[index]) return Fail(fmt::format("item {} answered twice", media.id));
  flight->answered[index] = true;
  --flight->unanswered;
  const bool joined = answer.source == Source::kJoined;
  if (world_.scheduler->Now() > (joined ? flight->wait_deadline : flight->deadline)) {
    Fail(fmt::format("item {} answered after its deadline", media.id));
  }
  const int set = (answer.pin ? 1 : 0) + (answer.claim ? 1 : 0) + (answer.status.ok() ? 0 : 1);
  if (set != 1) Fail(fmt::format("item {}: {} answers in one", media.id, set));
  if (answer.pin) {
    ++world_.counts[joined ? "joined" : answer.source == Source::kLocal ? "local" : "global"];
    Hold(media, std::move(answer.pin));
  } else if (answer.claim) {
    ++world_.counts[answer.store_failed ? "store failed" : answer.no_room ? "no room" : "miss"];
    Compute(flight, index, std::move(answer.claim));
  } else {
    ++world_.counts["not answered"];
    flight->again.push_back(media);
  }
  End(flight);
}

void SimNode::Hold(const Media& media, Pin pin) {
  const std::string problem = CheckPin(media, pin);
  if (!problem.empty()) Fail("pinned: " + problem);
  const Duration time = world_.random.Between(milliseconds(0), milliseconds(60));
  auto held = std::make_shared<Pin>(std::move(pin));
  (void)world_.scheduler->Schedule(world_.scheduler->Now() + time, [this, media, held] {
    const std::string changed = CheckPin(media, *held);
    if (!changed.empty()) Fail("while pinned: " + changed);
    held->Release();
  });
}

// The encoder. An aborted or dropped claim is an encoder that failed.
void SimNode::Compute(const FlightPtr& flight, size_t index, Claim claim) {
  const LifePtr life = flight->life;
  const Media& media = flight->items[index];
  const uint64_t number = flight->number;
  if (life->removed[media.id] < number && !life->computing.try_emplace(media.id, number).second) {
    Fail(fmt::format("item {} is computed twice at once", media.id));
  }
  ++flight->computing;
  auto shared_claim = std::make_shared<Claim>(std::move(claim));
  world_.scheduler->Post([this, life, flight, media, number, shared_claim] {
    Random& random = world_.random;
    Claim own = std::move(*shared_claim);
    const auto sleep = [&] {
      world_.scheduler->SleepFor(random.Between(milliseconds(1), milliseconds(100)));
    };
    const auto end = [&] {
      const auto it = life->computing.find(media.id);
      if (it != life->computing.end() && it->second == number) life->computing.erase(it);
    };
    sleep();
    const uint64_t bound = media.payload_bytes() * (random.Chance(0.2) ? 2 : 1);
    if (random.Chance(0.05)) {
      end();
      own.Abort(Status::Internal("the encoder failed"));
    } else if (random.Chance(0.03)) {
      end();
      own = Claim();
    } else if (!own.Reserve(bound, media.metadata.size()).ok()) {
      ++world_.counts["no memory"];
      end();
      own.Abort(Status::ResourceExhausted("no memory"));
    } else {
      FillRows(media, 0, media.tokens / 2, own.buffers());
      sleep();
      FillRows(media, media.tokens / 2, media.tokens, own.buffers());
      end();
      Result<Pin> pin = own.Commit(media.tokens, media.metadata, 5);
      if (pin.ok()) {
        ++world_.counts["computed"];
        Hold(media, *std::move(pin));
      } else {
        Fail(fmt::format("item {}: {}", media.id, pin.status().ToString()));
      }
    }
    --flight->computing;
    End(flight);
  });
}

void SimNode::End(const FlightPtr& flight) {
  if (flight->unanswered > 0 || flight->computing > 0 || flight->life != life_) return;
  // After the callback: it must not call back.
  (void)world_.scheduler->Schedule(world_.scheduler->Now(), [this, flight] {
    if (flight->life != life_ || !life_->controller) return;
    Insert(flight->items);
    if (!flight->again.empty() && flight->tries_left > 0) {
      Request(flight->again, flight->tries_left - 1);
    }
  });
}

void SimNode::Insert(std::span<const Media> items) {
  std::vector<EmbeddingKey> keys;
  for (const Media& media : items) keys.push_back(media.key);
  (void)life_->controller->InsertBatch(keys);
}

void SimNode::Prefetch(std::span<const Media> items) {
  SimScheduler& scheduler = *world_.scheduler;
  const std::string id = fmt::format("request {}", next_request_++);
  std::vector<LookupItem> asked;
  for (const Media& media : items) {
    asked.push_back(
        {media.key, world_.random.Chance(0.5) ? static_cast<int64_t>(media.tokens) : -1});
  }
  const Status status = life_->controller->Prefetch(id, SimSpec(), asked);
  if (!status.ok()) Fail("prefetch: " + status.ToString());
  const LifePtr life = life_;
  (void)scheduler.Schedule(
      scheduler.Now() + options_.lookup_timeout + Duration(1), [this, life, id] {
        if (life != life_ || !life->controller) return;
        if (life->controller->CheckPrefetchProgress(id) == PrefetchState::kPending) {
          Fail("a prefetch is pending after its deadline");
        }
      });
  if (world_.random.Chance(0.1)) return;  // the request's pins have to end with their time
  const Duration time = world_.random.Between(milliseconds(0), milliseconds(800));
  (void)scheduler.Schedule(scheduler.Now() + time, [this, life, id] {
    if (life != life_ || !life->controller) return;
    const Status released = life->controller->ReleaseRequest(id);
    if (!released.ok()) Fail(released.ToString());
  });
}

void SimNode::Remove(const Media& media) {
  SimScheduler& scheduler = *world_.scheduler;
  life_->computing.erase(media.id);
  life_->removed[media.id] = life_->last_flight;
  const TimePoint deadline = scheduler.Now() + milliseconds(100);
  auto answers = std::make_shared<int>(0);
  life_->controller->Remove(media.key, deadline, [answers](const RemoveResult&) { ++*answers; });
  (void)scheduler.Schedule(deadline + Duration(1), [this, answers] {
    if (*answers != 1) Fail(fmt::format("a removal was answered {} times", *answers));
  });
}

void SimNode::AskWhetherExist(std::span<const Media> items) {
  SimScheduler& scheduler = *world_.scheduler;
  std::vector<EmbeddingKey> keys;
  for (const Media& media : items) keys.push_back(media.key);
  const TimePoint deadline = scheduler.Now() + milliseconds(100);
  auto answers = std::make_shared<int>(0);
  life_->controller->BatchIsExist(
      keys, deadline, [this, answers, asked = keys.size()](const std::vector<bool>& found) {
        ++*answers;
        if (found.size() != asked) Fail(fmt::format("{} flags for {} keys", found.size(), asked));
      });
  (void)scheduler.Schedule(deadline + Duration(1), [this, answers] {
    if (*answers != 1) Fail(fmt::format("a question was answered {} times", *answers));
  });
}

void SimNode::Check() {
  if (!life_->controller) return;
  const Status status = life_->controller->host_cache().CheckInvariants();
  if (!status.ok()) Fail(status.ToString());
}

void SimNode::CheckIdle() {
  const ControllerStats stats = life_->controller->Stats();
  for (const PoolView& pool : stats.pools) {
    if (pool.filling != 0 || pool.quarantined != 0 || pool.pinned_entries != 0 ||
        pool.filling_entries != 0 || pool.free + pool.ready != pool.pages ||
        (pool.name == "uncached" && pool.ready != 0)) {
      Fail(
          fmt::format("pool {}: of {} pages {} are free, {} ready, {} filling, {} quarantined; {} "
                      "entries are filling, {} pinned",
                      pool.name, pool.pages, pool.free, pool.ready, pool.filling, pool.quarantined,
                      pool.filling_entries, pool.pinned_entries));
    }
  }
  for (const LaneView& lane : stats.lanes) {
    if (lane.queued != 0 || lane.running != 0 || lane.queued_bytes != 0) {
      Fail(fmt::format("the {} lane has {} jobs queued ({} bytes), {} running", lane.name,
                       lane.queued, lane.queued_bytes, lane.running));
    }
  }
}

}  // namespace embercache::simulation
