#include "tests/simulation/sim_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "src/store/memory/memory_store.h"
#include "src/store/store_call.h"

// Invariant: objects_ is called without a sleep in between, so that each of its calls happens at
// one moment; the caller's buffers are touched only in Scatter, Gather and Scribble.

namespace embercache::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kBlock = 4096;
// Magic and version of a trailer: an object with others is somebody else's, not a damaged one.
constexpr uint64_t kForeignBytes = 10;

std::shared_ptr<EmbeddingStore> NewMemoryStore(const Clock& clock) {
  return std::move(CreateMemoryStore({.json = "{}", .clock = &clock})).value();
}

// Copies bytes [first, end) of the sequence that the buffers are.
void Scatter(std::span<const std::byte> from, uint64_t first, uint64_t end,
             std::span<const MutableBuffer> to) {
  uint64_t position = 0;
  for (const MutableBuffer& buffer : to) {
    const uint64_t low = std::clamp(first, position, position + buffer.size());
    const uint64_t high = std::clamp(end, position, position + buffer.size());
    if (high > low) std::memcpy(buffer.data() + (low - position), from.data() + low, high - low);
    position += buffer.size();
  }
}

void Gather(std::span<const ConstBuffer> from, uint64_t first, uint64_t end,
            std::span<std::byte> to) {
  uint64_t position = 0;
  for (const ConstBuffer& buffer : from) {
    const uint64_t low = std::clamp(first, position, position + buffer.size());
    const uint64_t high = std::clamp(end, position, position + buffer.size());
    if (high > low) std::memcpy(to.data() + low, buffer.data() + (low - position), high - low);
    position += buffer.size();
  }
}

// The content of buffers that are not filled by a hit is undefined.
void Scribble(std::span<const MutableBuffer> buffers) {
  for (const MutableBuffer& buffer : buffers) {
    std::memset(buffer.data(), 0xee, std::min<size_t>(buffer.size(), 512));
  }
}

template <typename ResultType>
std::vector<ResultType> AllFail(size_t items, const Status& status) {
  std::vector<ResultType> results(items);
  for (ResultType& result : results) result.status = status;
  return results;
}

}  // namespace

SimStore::SimStore(std::shared_ptr<SimScheduler> scheduler, std::vector<Media> media, uint64_t seed,
                   std::function<void(std::string)> fail)
    : scheduler_(std::move(scheduler)),
      media_(std::move(media)),
      fail_(std::move(fail)),
      objects_(NewMemoryStore(*scheduler_)),
      random_(seed) {}

class SimStore::Connection final : public EmbeddingStore {
 public:
  explicit Connection(SimStore& store) : store_(store) {}

  std::string_view name() const override { return "simulated"; }

  std::vector<StatResult> BatchStat(std::span<const std::string_view> keys,
                                    const CallContext& context) override {
    return Call<StatResult>(keys, context, [this](std::string_view key) {
      StatResult result = store_.objects_->BatchStat(std::span(&key, 1), {}).front();
      if (Strikes(store_.rates.wrong_size)) result.bytes += kBlock;
      return result;
    });
  }

  std::vector<GetResult> BatchGetIntoMultiBuffers(std::span<const GetItem> items,
                                                  const CallContext& context) override {
    for (const GetItem& item : items) CheckRegistered(item.buffers);
    return Call<GetResult>(items, context, [this](const GetItem& item) { return Get(item); });
  }

  std::vector<PutResult> BatchPutFromMultiBuffers(std::span<const PutItem> items,
                                                  const CallContext& context) override {
    for (const PutItem& item : items) CheckRegistered(item.buffers);
    return Call<PutResult>(items, context, [this](const PutItem& item) { return Put(item); });
  }

  std::vector<RemoveResult> BatchRemove(std::span<const RemoveItem> items,
                                        const CallContext& context) override {
    return Call<RemoveResult>(items, context, [this](const RemoveItem& item) {
      return store_.objects_->BatchRemove(std::span(&item, 1), {}).front();
    });
  }

  Status RegisterBuffer(const BufferRegion& region) override {
    regions_.push_back(region.memory);
    return Status::Ok();
  }
  Status UnregisterBuffer(const BufferRegion& region) override {
    if (in_flight_ > 0) store_.fail_("memory was unregistered under a call");
    std::erase_if(regions_,
                  [&](const MutableBuffer& known) { return known.data() == region.memory.data(); });
    return Status::Ok();
  }

  StoreHealth Health() override { return {StoreState::kUp, "simulated"}; }
  Status Close(TimePoint) override {
    closed_ = true;
    return Status::Ok();
  }

 private:
  // Counts the calls in progress, whatever ends them.
  struct InFlight {
    explicit InFlight(Connection& owner) : connection(owner) {
      ++connection.in_flight_;
      ++connection.store_.in_flight_;
    }
    ~InFlight() {
      --connection.in_flight_;
      --connection.store_.in_flight_;
    }
    Connection& connection;
  };

  bool Strikes(double rate) { return store_.random_.Chance(rate); }
  void Sleep(Duration low, Duration high) {
    store_.scheduler_->SleepFor(store_.random_.Between(low, high));
  }

  template <typename ResultType, typename Item, typename One>
  std::vector<ResultType> Call(std::span<const Item> items, const CallContext& context, One one) {
    const InFlight in_flight(*this);
    // Half of the calls stop in time when they should, the others go on as if nobody had asked.
    const bool punctual = Strikes(0.5);
    Sleep(milliseconds(0), milliseconds(5));
    if (Strikes(store_.rates.late)) Sleep(milliseconds(200), seconds(3));
    if (Strikes(store_.rates.hang)) Sleep(seconds(3), seconds(20));
    if (closed_) return AllFail<ResultType>(items.size(), CallGate::ClosedStatus());
    if (punctual) {
      const Status status = CheckCall(context, *store_.scheduler_);
      if (!status.ok()) return AllFail<ResultType>(items.size(), status);
    }
    if (store_.scheduler_->Now() < store_.down_until_) {
      return AllFail<ResultType>(items.size(), Status::Unavailable("down"));
    }
    if (Strikes(store_.rates.throws)) throw std::runtime_error("thrown");
    std::vector<ResultType> results;
    for (const Item& item : items) {
      ResultType result;
      result.status = Status::Unavailable("injected");
      if (!Strikes(store_.rates.error)) {
        ResultType served = one(item);
        if (!Strikes(store_.rates.lost_reply)) result = std::move(served);
      }
      results.push_back(std::move(result));
    }
    if (Strikes(store_.rates.few_results)) results.pop_back();
    return results;
  }

  GetResult Get(const GetItem& item) {
    const uint64_t bytes = TotalBytes(item.buffers);
    std::vector<std::byte> object(bytes);
    const MutableBuffer whole(object);
    const GetItem read{.key = item.key, .buffers = std::span(&whole, 1)};
    GetResult result = store_.objects_->BatchGetIntoMultiBuffers(std::span(&read, 1), {}).front();
    if (Strikes(store_.rates.wrong_size)) {
      const uint64_t sizes[] = {0, bytes + kBlock, bytes - kBlock, bytes + 1, kBlock};
      result.outcome = GetOutcome::kWrongSize;
      result.bytes = sizes[store_.random_.Below(std::size(sizes))];
    }
    if (result.outcome != GetOutcome::kHit) {
      Scribble(item.buffers);
      return result;
    }
    if (Strikes(store_.rates.flip)) {
      object[store_.random_.Below(bytes)] ^= std::byte{1} << store_.random_.Below(8);
    }
    const bool lies = Strikes(store_.rates.lying_read);
    Scatter(object, 0, bytes / 2, item.buffers);
    Sleep(milliseconds(0), milliseconds(3));
    if (!lies) Scatter(object, bytes / 2, bytes, item.buffers);
    return result;
  }

  PutResult Put(const PutItem& item) {
    const uint64_t bytes = TotalBytes(item.buffers);
    std::vector<std::byte> object(bytes);
    Gather(item.buffers, 0, bytes / 2, object);
    Sleep(milliseconds(0), milliseconds(3));
    Gather(item.buffers, bytes / 2, bytes, object);
    const Media* media = FindMedia(store_.media_, item.key);
    const std::string problem =
        media == nullptr ? "of nothing that there is" : CheckObject(*media, object);
    if (!problem.empty()) store_.fail_("published: " + problem);
    if (Strikes(store_.rates.lost_write)) return {.outcome = PutOutcome::kStored, .status = {}};
    // Cut within a block: a cut between blocks cannot be told from a foreign object.
    if (Strikes(store_.rates.short_write)) object.resize(bytes / 2 + 1);
    const ConstBuffer whole(object);
    const PutItem written{.key = item.key, .buffers = std::span(&whole, 1), .mode = item.mode};
    return store_.objects_->BatchPutFromMultiBuffers(std::span(&written, 1), {}).front();
  }

  template <typename Buffer>
  void CheckRegistered(std::span<const Buffer> buffers) {
    for (const Buffer& buffer : buffers) {
      const bool known = std::any_of(regions_.begin(), regions_.end(), [&](MutableBuffer region) {
        return buffer.data() >= region.data() &&
               buffer.data() + buffer.size() <= region.data() + region.size();
      });
      if (!known) store_.fail_("a transfer from or to memory that was not registered");
    }
  }

  SimStore& store_;
  std::vector<MutableBuffer> regions_;
  size_t in_flight_ = 0;
  bool closed_ = false;
};

std::shared_ptr<EmbeddingStore> SimStore::Connect() {
  return std::make_shared<Connection>(*this);
}

std::vector<std::byte> SimStore::Read(std::string_view key) {
  const StatResult stat = objects_->BatchStat(std::span(&key, 1), {}).front();
  std::vector<std::byte> bytes(stat.bytes);
  const MutableBuffer buffer(bytes);
  if (stat.found) (void)objects_->BatchGet(std::span(&key, 1), std::span(&buffer, 1), {});
  return bytes;
}

void SimStore::Replace(std::string_view key, std::span<const std::byte> bytes) {
  const PutItem item{.key = key, .buffers = std::span(&bytes, 1), .mode = PutMode::kReplace};
  (void)objects_->BatchPutFromMultiBuffers(std::span(&item, 1), {});
}

void SimStore::Lose(double share) {
  for (const Media& media : media_) {
    if (!random_.Chance(share)) continue;
    const std::string key = media.key.Text();
    const RemoveItem item{.key = key};
    (void)objects_->BatchRemove(std::span(&item, 1), {});
  }
}

void SimStore::FlipAtRest(const Media& media) {
  const std::string key = media.key.Text();
  std::vector<std::byte> bytes = Read(key);
  if (!CheckObject(media, bytes).empty()) return;
  const uint64_t last_bytes = kBlock - kForeignBytes;
  uint64_t place = random_.Below(media.payload_bytes() + last_bytes);
  if (place >= media.payload_bytes()) place += bytes.size() - media.payload_bytes() - last_bytes;
  bytes[place] ^= std::byte{1} << random_.Below(8);
  Replace(key, bytes);
}

void SimStore::SwapAtRest(const Media& media, const Media& other) {
  const std::vector<std::byte> bytes = Read(other.key.Text());
  if (!bytes.empty()) Replace(media.key.Text(), bytes);
}

bool SimStore::IsSound(const Media& media) {
  return !Has(media) || CheckObject(media, Read(media.key.Text())).empty();
}

bool SimStore::Has(const Media& media) {
  const std::string key = media.key.Text();
  const std::string_view view = key;
  return objects_->BatchStat(std::span(&view, 1), {}).front().found;
}

}  // namespace embercache::simulation
