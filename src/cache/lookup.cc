#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "src/base/sync_point.h"
#include "src/cache/controller_impl.h"

// Invariants: each item is answered once, outside the lock. An item is local (answered at once),
// led (claims_[i] until the fetch is over, then with whoever asked) or joined (answered by the
// leader's end or by the timer, whichever takes the waiter out of the cache).

namespace embercache {
namespace {

// An embedding of more bytes than this is a mistake of the caller's.
constexpr uint64_t kMaxPayloadBytes = uint64_t{1} << 40;

using Impl = EmbeddingCacheController::Impl;

class LookupOp : public std::enable_shared_from_this<LookupOp> {
 public:
  LookupOp(std::shared_ptr<Impl> impl, const EmbeddingSpec& spec, std::span<const LookupItem> items,
           CheckLine line, LookupCallback callback)
      : impl_(std::move(impl)),
        spec_(spec),
        pool_(impl_->FindPool(spec)),
        items_(items.begin(), items.end()),
        line_(line),
        callback_(std::move(callback)),
        claims_(items.size()),
        start_(impl_->clock->Now()) {}

  void Start(TimePoint deadline, TimePoint wait_deadline) {
    std::vector<size_t> led;
    std::vector<Joined> joined;
    for (size_t i = 0; i < items_.size(); ++i) {
      if (Status status = CheckTokens(i); !status.ok()) {
        Answer(i, {.status = std::move(status)});
        continue;
      }
      joined_left_.fetch_add(1);  // taken back below unless it joins: the waiter may run at once
      HostCache::Lookup found = impl_->cache->FindOrClaim(
          items_[i].key, spec_, pool_,
          [self = shared_from_this(), i](Result<Pin> pin) { self->EndWait(i, std::move(pin)); });
      if (found.ticket != 0) {
        joined.push_back({i, found.ticket});
        continue;
      }
      joined_left_.fetch_sub(1);
      if (found.claim) {
        claims_[i] = std::move(found.claim);
        led.push_back(i);
      } else if (found.pin) {
        ++local_;
        AnswerHeld(i, std::move(found.pin), Source::kLocal);
      } else {
        Answer(i, {.status = std::move(found.status)});
      }
    }
    local_ += joined.size();
    if (!joined.empty()) StartTimer(std::move(joined), wait_deadline);
    Fetch(std::move(led), deadline);
  }

 private:
  struct Joined {
    size_t index;
    uint64_t ticket;
  };

  Status CheckTokens(size_t index) const {
    const int64_t tokens = items_[index].expected_tokens;
    const uint64_t most = kMaxPayloadBytes / std::max<uint64_t>(1, spec_.row_bytes());
    if (tokens < 0 || (tokens > 0 && static_cast<uint64_t>(tokens) <= most)) return Status::Ok();
    return Status::Invalid(fmt::format(
        "item {}: {} expected tokens; give 1 to {}, or -1 where the number is not known", index,
        tokens, most));
  }

  void Answer(size_t index, LookupAnswer answer) { callback_(index, std::move(answer)); }

  // A key that names two embeddings is somebody's mistake, and neither is served for the other.
  void AnswerHeld(size_t index, Pin pin, Source source) {
    const int64_t expected = items_[index].expected_tokens;
    const uint64_t tokens = pin.info().tokens;
    if (expected > 0 && static_cast<uint64_t>(expected) != tokens) {
      Answer(index, {.status = Status::Invalid(
                         fmt::format("key {} is held as {} rows, and was asked for as {}",
                                     items_[index].key.digest.ToHex(), tokens, expected)),
                     .source = source});
    } else {
      Answer(index, {.pin = std::move(pin), .source = source});
    }
  }

  void EndWait(size_t index, Result<Pin> pin) {
    if (joined_left_.fetch_sub(1) == 1) {
      if (const uint64_t id = wait_timer_.exchange(0)) impl_->timer->Cancel(id);
    }
    if (pin.ok()) {
      AnswerHeld(index, *std::move(pin), Source::kJoined);
    } else {
      Answer(index, {.status = pin.status(), .source = Source::kJoined});
    }
  }

  void StartTimer(std::vector<Joined> joined, TimePoint wait_deadline) {
    SYNC_POINT("lookup: before wait timer");
    wait_timer_ = impl_->timer->Schedule(
        wait_deadline, [self = shared_from_this(), joined = std::move(joined)] {
          SYNC_POINT("lookup: wait deadline");
          for (const Joined& item : joined) {
            const EmbeddingKey& key = self->items_[item.index].key;
            if (!self->impl_->cache->CancelWait(key, item.ticket)) continue;
            self->EndWait(item.index, Status::DeadlineExceeded(
                                          "the one who computes this item did not finish in time"));
          }
        });
    if (joined_left_.load() == 0) {
      if (const uint64_t id = wait_timer_.exchange(0)) impl_->timer->Cancel(id);
    }
  }

  void Fetch(std::vector<size_t> led, TimePoint deadline) {
    std::vector<FetchItem> fetches;
    std::vector<size_t> indices;
    for (size_t i : led) {
      if (!impl_->global) {
        Miss(i, std::move(claims_[i]), {});
        continue;
      }
      FetchItem fetch{.key = items_[i].key, .expected_tokens = items_[i].expected_tokens};
      if (fetch.expected_tokens > 0) {
        const uint64_t bytes = static_cast<uint64_t>(fetch.expected_tokens) * spec_.row_bytes();
        if (!claims_[i].Reserve(bytes, 0).ok()) {
          Miss(i, std::move(claims_[i]), {.no_room = true});
          continue;
        }
        fetch.block = BlockOf(claims_[i]);
      }
      fetch.reserve = [self = shared_from_this(), i](uint64_t payload_bytes, uint64_t blocks) {
        return self->ReserveFor(i, payload_bytes, blocks);
      };
      fetches.push_back(std::move(fetch));
      indices.push_back(i);
    }
    if (fetches.empty()) {
      LogCheck();
      return;
    }
    impl_->global->Fetch(
        spec_, std::move(fetches), impl_->MemoryFor(pool_), deadline,
        [self = shared_from_this(), indices = std::move(indices)](
            std::vector<FetchResult> results) { self->EndFetch(indices, std::move(results)); });
  }

  static std::shared_ptr<Block> BlockOf(const Claim& claim) { return ClaimAccess::block(claim); }

  // On a lane's worker, which may be late.
  Result<std::shared_ptr<Block>> ReserveFor(size_t index, uint64_t payload_bytes, uint64_t blocks) {
    MutexLock lock(mutex_);
    if (fetch_over_) return Status::Cancelled("the look-up is over");
    const uint64_t metadata_bytes = (blocks - 1) * kBlockBytes;
    EMBERCACHE_RETURN_IF_ERROR(claims_[index].Reserve(payload_bytes, metadata_bytes));
    return BlockOf(claims_[index]);
  }

  void EndFetch(const std::vector<size_t>& indices, std::vector<FetchResult> results) {
    const Duration fetch_time = impl_->clock->Now() - start_;
    std::vector<Claim> claims;
    {
      MutexLock lock(mutex_);
      fetch_over_ = true;
      claims.swap(claims_);
    }
    impl_->metrics->ObserveStage("fetch", std::chrono::duration<double>(fetch_time).count());
    for (const FetchResult& result : results) {
      if (result.outcome == FetchOutcome::kHit) ++global_;
    }
    misses_ += results.size() - global_;
    LogCheck();
    for (size_t n = 0; n < indices.size(); ++n) {
      const size_t i = indices[n];
      FetchResult& result = results[n];
      if (result.outcome == FetchOutcome::kHit) {
        result.block.reset();
        Result<Pin> pin =
            ClaimAccess::CommitFetched(claims[i], result.tokens, std::move(result.metadata));
        LookupAnswer answer{.status = pin.status(), .source = Source::kGlobal};
        if (pin.ok()) answer.pin = *std::move(pin);
        answer.fetch_time = fetch_time;
        Answer(i, std::move(answer));
      } else {
        claims[i].DropMemory();
        Answer(i, {.claim = std::move(claims[i]),
                   .source = Source::kGlobal,
                   .fetch_time = fetch_time,
                   .store_failed = result.outcome == FetchOutcome::kFailed,
                   .no_room = result.outcome == FetchOutcome::kNoRoom});
      }
    }
  }

  void Miss(size_t index, Claim claim, LookupAnswer answer) {
    ++misses_;
    answer.claim = std::move(claim);
    Answer(index, std::move(answer));
  }

  void LogCheck() {
    if (line_ == CheckLine::kLogged) LogCacheCheck(items_.size(), local_, global_, misses_);
  }

  const std::shared_ptr<Impl> impl_;
  const EmbeddingSpec spec_;
  const uint32_t pool_;
  const std::vector<LookupItem> items_;
  const CheckLine line_;
  const LookupCallback callback_;
  std::atomic<size_t> joined_left_{0};
  std::atomic<uint64_t> wait_timer_{0};
  // Of the thread that runs Start, then of the one that runs EndFetch.
  uint64_t local_ = 0;
  uint64_t global_ = 0;
  uint64_t misses_ = 0;

  Mutex mutex_;
  std::vector<Claim> claims_;  // guarded by mutex_ from Fetch on
  bool fetch_over_ GUARDED_BY(mutex_) = false;
  const TimePoint start_;
};

}  // namespace

void StartLookup(std::shared_ptr<Impl> impl, const EmbeddingSpec& spec,
                 std::span<const LookupItem> items, TimePoint deadline, TimePoint wait_deadline,
                 CheckLine line, LookupCallback callback) {
  std::make_shared<LookupOp>(std::move(impl), spec, items, line, std::move(callback))
      ->Start(deadline, wait_deadline);
}

}  // namespace embercache
