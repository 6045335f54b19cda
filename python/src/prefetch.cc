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

void Cache::BeginPrefetch(const std::string& name, const EmbeddingSpec& spec,
                          std::span<const EmbeddingKey> keys,
                          std::span<const int64_t> expected_tokens) {
  std::vector<LookupItem> items;
  for (size_t i = 0; i < keys.size(); ++i) items.push_back({keys[i], expected_tokens[i]});
  RaiseIfError(Use().Prefetch(name, spec, items));  // never waits
}

void Cache::Prefetch(const std::string& req_id, nb::sequence keys,
                     const std::vector<int64_t>& expected_tokens, const std::string& modality) {
  fork_.Check("cache");
  const EmbeddingSpec spec = SpecOf(modality);
  BeginPrefetch(req_id, spec, ToStoreKeys(keys, spec, &expected_tokens), expected_tokens);
}

void Cache::PrefetchUntilUsed(const std::string& req_id, nb::sequence keys,
                              const std::vector<int64_t>& expected_tokens,
                              const std::string& modality) {
  fork_.Check("cache");
  const EmbeddingSpec spec = SpecOf(modality);
  std::vector<EmbeddingKey> names = ToStoreKeys(keys, spec, &expected_tokens);
  std::string name = requests_.NameOf(req_id);
  BeginPrefetch(name, spec, names, expected_tokens);
  requests_.Add(req_id, std::move(name), std::move(names));
}

bool Cache::PrefetchEnded(const std::string& req_id, double wait_s) {
  EmbeddingCacheController& controller = Use();
  const TimePoint deadline = DeadlineIn(wait_s);
  // As in PrefetchState.
  std::optional<nb::gil_scoped_release> no_gil;
  if (wait_s > 0 || settings_.tp_group) no_gil.emplace();
  for (const std::string& name : requests_.Running(req_id)) {
    if (wait_s > 0) (void)controller.WaitPrefetch(name, deadline);
    if (controller.CheckPrefetchProgress(name) == embercache::PrefetchState::kPending) return false;
  }
  requests_.Finish(req_id, controller);
  return true;
}

void Cache::Used(nb::sequence keys) {
  EmbeddingCacheController& controller = Use();
  std::vector<EmbeddingKey> names;
  for (const nb::handle key : keys) names.push_back(ToKey(key));
  requests_.Used(names, controller);
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

bool Cache::ReleaseRequest(const std::string& req_id) {
  return Use().ReleaseRequest(req_id).ok();
}

}  // namespace embercache::python
