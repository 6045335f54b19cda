#include "python/src/cache.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "src/base/mutex.h"
#include "src/cache/source_name.h"

namespace embercache::python {
namespace {

// What becomes of items that are led. One that is only looked for is given up at once: another item
// of the same look-up may be waiting for it.
enum class Lead { kGiveUp, kKeep };

// The answers of one Lookup, waited for without the GIL.
class Answers {
 public:
  Answers(size_t items, Lead lead) : lead_(lead), answers_(items) {}

  LookupCallback Callback(const std::shared_ptr<Answers>& self) {
    return [self](size_t index, LookupAnswer answer) {
      if (self->lead_ == Lead::kGiveUp && answer.claim) {
        answer.claim.Abort(Status::NotFound("the item was only looked for"));
      }
      MutexLock lock(self->mutex_);
      self->answers_[index] = std::move(answer);
      if (++self->answered_ == self->answers_.size()) self->done_.NotifyAll();
    };
  }
  // Each item is answered once, at the latest when its deadline has passed.
  std::vector<LookupAnswer> Wait() {
    MutexLock lock(mutex_);
    while (answered_ < answers_.size()) (void)done_.WaitUntil(mutex_, TimePoint::max());
    return std::move(answers_);
  }

 private:
  const Lead lead_;
  Mutex mutex_;
  CondVar done_;
  std::vector<LookupAnswer> answers_ GUARDED_BY(mutex_);
  size_t answered_ GUARDED_BY(mutex_) = 0;
};

std::vector<LookupAnswer> LookUp(EmbeddingCacheController& controller, const EmbeddingSpec& spec,
                                 std::span<const LookupItem> items, TimePoint deadline,
                                 TimePoint wait_deadline, Lead lead) {
  if (items.empty()) return {};
  const NoGil no_gil;
  const auto answers = std::make_shared<Answers>(items.size(), lead);
  controller.Lookup(spec, items, deadline, wait_deadline, answers->Callback(answers));
  return answers->Wait();
}

}  // namespace

nb::list Cache::GetMany(nb::sequence keys, const std::string& modality,
                        std::optional<std::vector<int64_t>> expected_tokens,
                        std::optional<double> timeout_s) {
  EmbeddingCacheController& controller = Use();
  const EmbeddingSpec spec = SpecOf(modality);
  const std::vector<EmbeddingKey> names =
      ToStoreKeys(keys, spec, expected_tokens ? &*expected_tokens : nullptr);
  std::vector<LookupItem> items;
  for (size_t i = 0; i < names.size(); ++i) {
    items.push_back({names[i], expected_tokens ? (*expected_tokens)[i] : -1});
    if (raw_ && items.back().expected_tokens <= 0) {
      Raise(Status::Invalid("a store in raw format needs expected_tokens for each key"));
    }
  }
  const TimePoint deadline = DeadlineIn(timeout_s.value_or(settings_.lookup_timeout_s));
  std::vector<LookupAnswer> answers =
      LookUp(controller, spec, items, deadline, deadline, Lead::kGiveUp);
  nb::list result;
  for (LookupAnswer& answer : answers) {
    if (answer.status.code() == StatusCode::kInvalid) Raise(answer.status);
    if (answer.pin) {
      result.append(nb::cast(
          std::make_unique<EmbeddingView>(std::move(answer.pin), SourceName(answer.source))));
    } else {
      result.append(nb::none());
    }
  }
  return result;
}

std::unique_ptr<EmbeddingView> Cache::Compute(Claim claim, const nb::callable& compute,
                                              const EmbeddingSpec& spec,
                                              const std::string& metadata) {
  nb::object array;
  InputRows rows;
  try {
    array = compute();
    InputArray input;
    if (!nb::try_cast(array, input)) {
      RaiseIfError(Status::Invalid(
          fmt::format("compute returned {}; it has to be an array [tokens, {}]",
                      nb::cast<std::string>(array.type().attr("__name__")), spec.hidden)));
    }
    rows = ValueOrRaise(RowsOf(input, spec));
  } catch (...) {
    claim.Abort(Status::Internal("the one who computed this item failed"));
    throw;
  }
  Status status;
  embercache::Pin pin;
  EmbeddingInfo info{.key = claim.key(), .spec = spec, .tokens = rows.tokens, .metadata = metadata};
  {
    const NoGil no_gil;
    status = claim.Reserve(rows.rows.size(), metadata.size());
    if (status.ok()) {
      ConstBuffer from = rows.rows;
      for (const MutableBuffer to : claim.buffers()) {
        std::memcpy(to.data(), from.data(), to.size());
        from = from.subspan(to.size());
      }
      Result<embercache::Pin> committed = claim.Commit(rows.tokens, metadata);
      status = committed.status();
      if (committed.ok()) pin = *std::move(committed);
    } else {
      claim.Abort(status);
    }
  }
  if (pin) return std::make_unique<EmbeddingView>(std::move(pin), "computed");
  if (status.code() != StatusCode::kResourceExhausted) Raise(status);
  // No room: the one who asked gets it all the same.
  return std::make_unique<EmbeddingView>(std::move(info), rows.rows, HoldPython(array), "computed");
}

std::unique_ptr<EmbeddingView> Cache::GetOrCompute(nb::object key, nb::callable compute,
                                                   const std::string& modality,
                                                   int64_t expected_tokens, double wait_s,
                                                   bool publish, const std::string& metadata) {
  const EmbeddingSpec spec = SpecOf(modality);
  const LookupItem item{ToStoreKey(key, spec, expected_tokens), expected_tokens};
  if (raw_ && expected_tokens <= 0) {
    Raise(Status::Invalid("a store in raw format needs expected_tokens"));
  }
  const TimePoint wait_deadline = DeadlineIn(wait_s);
  while (true) {
    EmbeddingCacheController& controller = Use();
    LookupAnswer answer =
        std::move(LookUp(controller, spec, std::span(&item, 1),
                         DeadlineIn(settings_.lookup_timeout_s), wait_deadline, Lead::kKeep)
                      .front());
    if (answer.pin) {
      return std::make_unique<EmbeddingView>(std::move(answer.pin), SourceName(answer.source));
    }
    if (answer.claim) {
      auto view = Compute(std::move(answer.claim), compute, spec, metadata);
      if (publish && view->cached()) {
        const NoGil no_gil;
        (void)controller.InsertBatch(std::span(&item.key, 1));
      }
      return view;
    }
    const StatusCode code = answer.status.code();
    const bool leader_failed = answer.source == Source::kJoined && code != StatusCode::kInvalid &&
                               code != StatusCode::kDeadlineExceeded;
    if (!leader_failed || SteadyClock().Now() >= wait_deadline) Raise(answer.status);
  }
}

}  // namespace embercache::python
