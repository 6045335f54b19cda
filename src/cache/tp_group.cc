#include "embercache/tp_group.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/mutex.h"

namespace embercache {
namespace {

// Invariant: a round collects one contribution a rank; the last one publishes the result, and the
// next round begins once every rank has taken it. A rank that gives up takes its contribution back.
struct Round {
  explicit Round(int ranks) : size(ranks) {}

  const int size;
  Mutex mutex;
  CondVar changed;
  uint64_t number GUARDED_BY(mutex) = 0;
  std::vector<std::vector<uint8_t>> values GUARDED_BY(mutex);
  std::vector<uint8_t> result GUARDED_BY(mutex);
  bool result_bad GUARDED_BY(mutex) = false;

  void Complete() REQUIRES(mutex) {
    result = values.front();
    result_bad = false;
    for (const std::vector<uint8_t>& other : values) {
      result_bad = result_bad || other.size() != result.size();
      if (result_bad) break;
      std::transform(result.begin(), result.end(), other.begin(), result.begin(),
                     [](uint8_t a, uint8_t b) { return std::min(a, b); });
    }
    values.clear();
    ++number;
    changed.NotifyAll();
  }
};

class InProcessTpGroup final : public TpGroup {
 public:
  InProcessTpGroup(std::shared_ptr<Round> round, int rank)
      : round_(std::move(round)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return round_->size; }

  Result<std::vector<uint8_t>> AllReduceMin(std::span<const uint8_t> values,
                                            TimePoint deadline) override {
    MutexLock lock(round_->mutex);
    const uint64_t number = round_->number;
    round_->values.emplace_back(values.begin(), values.end());
    if (round_->values.size() == static_cast<size_t>(round_->size)) {
      round_->Complete();
    } else {
      while (round_->number == number) {
        if (round_->changed.WaitUntil(round_->mutex, deadline) || round_->number != number)
          continue;
        const auto mine =
            std::find_if(round_->values.begin(), round_->values.end(), [&](const auto& v) {
              return std::equal(v.begin(), v.end(), values.begin(), values.end());
            });
        round_->values.erase(mine);
        return Status::DeadlineExceeded(fmt::format("{} of {} ranks came to agree in time",
                                                    round_->values.size() + 1, round_->size));
      }
    }
    if (round_->result_bad) {
      return Status::Invalid("the ranks of the group brought values of different lengths");
    }
    return round_->result;
  }

 private:
  const std::shared_ptr<Round> round_;
  const int rank_;
};

class CallbackTpGroup final : public TpGroup {
 public:
  CallbackTpGroup(int rank, int size, AllReduceMinCallback reduce)
      : rank_(rank), size_(size), reduce_(std::move(reduce)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Result<std::vector<uint8_t>> AllReduceMin(std::span<const uint8_t> values,
                                            TimePoint deadline) override {
    return reduce_(values, deadline);
  }

 private:
  const int rank_;
  const int size_;
  const AllReduceMinCallback reduce_;
};

}  // namespace

std::vector<std::shared_ptr<TpGroup>> NewInProcessTpGroup(int size) {
  const auto round = std::make_shared<Round>(size);
  std::vector<std::shared_ptr<TpGroup>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::make_shared<InProcessTpGroup>(round, rank));
  }
  return ranks;
}

std::shared_ptr<TpGroup> NewCallbackTpGroup(int rank, int size, AllReduceMinCallback reduce) {
  return std::make_shared<CallbackTpGroup>(rank, size, std::move(reduce));
}

}  // namespace embercache
