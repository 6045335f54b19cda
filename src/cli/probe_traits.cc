#include "src/cli/probe_traits.h"

#include <fmt/format.h>

#include <random>

#include "tests/conformance/payload.h"

namespace embercache {
namespace {

constexpr size_t kProbeBytes = 1000;

}  // namespace

Result<StoreTraits> ProbeTraits(
    const std::function<Result<std::unique_ptr<EmbeddingStore>>()>& open) {
  EMBERCACHE_ASSIGN_OR_RETURN(const auto store, open());
  EMBERCACHE_ASSIGN_OR_RETURN(const auto other, open());
  std::random_device random;
  const std::string key =
      store->GetKey(fmt::format("conformance_{:08x}{:08x}_probe", random(), random()));
  const PutResult put = PutOne(*store, key, PayloadOf(key, kProbeBytes));
  if (put.outcome == PutOutcome::kFailed) {
    return Status(put.status.code(), "a put fails: " + put.status.message());
  }
  const StatResult stat = StatOne(*store, key);
  if (!stat.status.ok())
    return Status(stat.status.code(), "a stat fails: " + stat.status.message());
  StoreTraits traits;
  traits.tells_stored = put.outcome != PutOutcome::kAccepted;
  traits.versions = stat.version.has_value();
  traits.lists = store->List("", 1, {}).status().code() != StatusCode::kUnimplemented;
  traits.shared = StatOne(*other, key).found;
  (void)RemoveOne(*store, key);
  return traits;
}

}  // namespace embercache
