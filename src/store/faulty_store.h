#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "embercache/clock.h"
#include "embercache/status.h"
#include "embercache/store.h"
#include "src/base/mutex.h"
#include "src/store/store_call.h"

namespace embercache {

enum class StoreOp : uint8_t { kExist, kStat, kGet, kPut, kRemove, kList };

enum class FaultKind : uint8_t {
  // Trouble that shows.
  kDelay,       // the call takes `delay` longer
  kHang,        // the call waits, deadline or not, until Release; then it goes on
  kThrow,       // the call throws std::runtime_error, as a backend that breaks its contract
  kError,       // the item fails with `status`; nothing is stored or removed
  kShortRead,   // gets: half of the bytes are in the buffers, then the item fails with `status`
  kLostReply,   // the item is served by the store, then fails with `status`
  kFewResults,  // the answer lacks its last result
  // Lies: the item looks served.
  kLyingRead,   // gets: kHit, but the second half of the buffers is untouched
  kFlipByte,    // gets: kHit with one bit of the bytes wrong
  kLostWrite,   // puts: kStored, but nothing is stored
  kShortWrite,  // puts: kStored, but half of the bytes are
  kPhantom,     // stats and exists: found, 4096 bytes longer than it is, though it may not be there
};

// When which fault strikes. An item suffers the first rule, in the order of Inject, that matches
// and strikes it; delays and hangs come on top of what follows them.
struct FaultRule {
  StoreOp op = StoreOp::kGet;
  FaultKind kind = FaultKind::kError;
  std::string key;              // empty: any key
  uint64_t skip = 0;            // so many matching items pass first
  uint64_t count = UINT64_MAX;  // then so many are struck
  double probability = 1.0;     // of striking a match, by the store's seed; the others pass
  Duration delay{};
  Status status = Status::Unavailable("injected");
};

// A store in front of another one that fails in the ways it is told to. For tests: it may break the
// contract of EmbeddingStore on purpose. Several may stand before one store, a node each.
// Thread-safe.
class FaultyStore final : public EmbeddingStore {
 public:
  // `sleep` serves kDelay; by default it waits in real time.
  explicit FaultyStore(std::shared_ptr<EmbeddingStore> inner, uint64_t seed = 1,
                       std::function<void(Duration)> sleep = nullptr);

  // Returns the rule's number for Struck.
  size_t Inject(FaultRule rule);
  // No rule strikes any more. Calls that hang go on.
  void Clear();
  // Lets the calls that hang now go on; later ones hang again.
  void Release();

  // How many items the rule has struck.
  uint64_t Struck(size_t rule) const;
  // Waits until `calls` calls hang at once; false when the deadline passed first.
  bool WaitUntilHanging(size_t calls, TimePoint deadline);
  // How many items of the operation came in, struck or not.
  uint64_t Seen(StoreOp op) const;

  EmbeddingStore& inner() { return *inner_; }

  std::string_view name() const override { return inner_->name(); }
  std::vector<StatResult> BatchIsExist(std::span<const std::string_view> keys,
                                       const CallContext& context) override;
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
  std::string GetKey(std::string_view hash) const override { return inner_->GetKey(hash); }
  StoreHealth Health() override { return inner_->Health(); }
  uint64_t Era() const override { return inner_->Era(); }
  Duration TimeToLive() const override { return inner_->TimeToLive(); }
  std::string DescribeJson() const override { return inner_->DescribeJson(); }
  // Closes the inner store too when no one else holds it.
  Status Close(TimePoint deadline) override;

 private:
  struct Rule {
    FaultRule fault;
    uint64_t matched = 0;
    uint64_t struck = 0;
    bool active = true;
  };
  // What strikes one item, and the random number that goes with it.
  struct Strike {
    const FaultRule* fault = nullptr;
    uint64_t random = 0;
    bool Is(FaultKind kind) const { return fault != nullptr && fault->kind == kind; }
    // Whether the inner store does not see the item.
    bool Withholds() const { return Is(FaultKind::kError) || Is(FaultKind::kLostWrite); }
  };
  // What strikes one call.
  struct Plan {
    std::vector<Strike> items;
    Duration delay{};
    bool hang = false;
    bool throws = false;
    bool few_results = false;
  };

  template <typename Item>
  Plan Meet(StoreOp op, std::span<const Item> items);
  void MeetItem(StoreOp op, std::string_view key, Plan& plan) REQUIRES(mutex_);
  // Delays, hangs or throws.
  void Suffer(const Plan& plan);
  std::vector<StatResult> StatOrExist(StoreOp op, std::span<const std::string_view> keys,
                                      const CallContext& context);

  const std::shared_ptr<EmbeddingStore> inner_;
  const std::function<void(Duration)> sleep_;
  CallGate gate_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::mt19937_64 random_ GUARDED_BY(mutex_);
  std::list<Rule> rules_ GUARDED_BY(mutex_);  // never shrinks: plans point into it
  std::array<uint64_t, 6> seen_ GUARDED_BY(mutex_){};
  size_t hanging_ GUARDED_BY(mutex_) = 0;
  uint64_t releases_ GUARDED_BY(mutex_) = 0;
};

}  // namespace embercache
