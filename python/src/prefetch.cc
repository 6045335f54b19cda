#include "python/src/cache.h"

#include <utility>

namespace embercache::python {
namespace {

const char* OutcomeName(embercache::PrefetchOutcome outcome) {
  switch (outcome) {
    case PrefetchOutcome::kPending:
      return "pending";
    case PrefetchOutcome::kLocal:
      return "local";
    case PrefetchOutcome::kGlobal:
      return "global";
    case PrefetchOutcome::kJoined:
      return "joined";
    case PrefetchOutcome::kMissing:
      return "missing";
    case PrefetchOutcome::kNoRoom:
      return "no_room";
    case PrefetchOutcome::kFailed:
      break;
  }
  return "failed";
}

}  // namespace

void Cache::Prefetch(const std::string& req_id, nb::sequence keys,
                     const std::vector<int64_t>& expected_tokens, const std::string& modality) {
  EmbeddingCacheController& controller = Use();
  const EmbeddingSpec spec = SpecOf(modality);
  const std::vector<EmbeddingKey> names = ToStoreKeys(keys, spec, &expected_tokens);
  std::vector<LookupItem> items;
  for (size_t i = 0; i < names.size(); ++i) items.push_back({names[i], expected_tokens[i]});
  RaiseIfError(controller.Prefetch(req_id, spec, items));  // never waits
}

std::string Cache::PrefetchState(const std::string& req_id, double wait_s) {
  EmbeddingCacheController& controller = Use();
  // One rank alone waits for nobody, and letting the GIL go would be all of what this costs.
  std::optional<nb::gil_scoped_release> no_gil;
  if (wait_s > 0 || settings_.tp_group) no_gil.emplace();
  if (wait_s > 0) (void)controller.WaitPrefetch(req_id, DeadlineIn(wait_s));
  const embercache::PrefetchState state = controller.CheckPrefetchProgress(req_id);
  no_gil.reset();
  switch (state) {
    case embercache::PrefetchState::kPending:
      return "pending";
    case embercache::PrefetchState::kDone:
      return "done";
    case embercache::PrefetchState::kExpired:
      break;
  }
  return "expired";
}

std::vector<std::string> Cache::PrefetchOutcomes(const std::string& req_id) {
  std::vector<std::string> names;
  for (const auto outcome : Use().PrefetchOutcomes(req_id)) names.push_back(OutcomeName(outcome));
  return names;
}

std::vector<bool> Cache::PrefetchReady(const std::string& req_id) {
  std::vector<bool> ready;
  for (const auto outcome : Use().PrefetchOutcomes(req_id)) {
    ready.push_back(outcome == PrefetchOutcome::kLocal || outcome == PrefetchOutcome::kGlobal ||
                    outcome == PrefetchOutcome::kJoined);
  }
  return ready;
}

bool Cache::ReleaseRequest(const std::string& req_id) {
  return Use().ReleaseRequest(req_id).ok();
}

}  // namespace embercache::python
