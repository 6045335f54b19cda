#include "python/src/cache.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace embercache::python {
namespace {

const char* CopyName(CopyOutcome outcome) {
  switch (outcome) {
    case CopyOutcome::kPending:
      return "pending";
    case CopyOutcome::kCopied:
      return "copied";
    case CopyOutcome::kPresent:
      return "present";
    case CopyOutcome::kJoined:
      return "joined";
    case CopyOutcome::kMissing:
      return "missing";
    case CopyOutcome::kNoRoom:
      return "no_room";
    case CopyOutcome::kFailed:
      break;
  }
  return "failed";
}

}  // namespace

CopyHandle Cache::StoreToPool(nb::sequence keys, const std::vector<InputArray>& arrays,
                              const std::string& modality, const std::string& metadata) {
  const EmbeddingSpec spec = SpecOf(modality);
  const std::vector<EmbeddingKey> names = ToStoreKeys(keys, spec, nullptr);
  if (names.size() != arrays.size()) {
    Raise(Status::Invalid(
        fmt::format("{} keys and {} arrays; give one for each key", names.size(), arrays.size())));
  }
  std::vector<PoolItem> items;
  for (size_t i = 0; i < names.size(); ++i) {
    const InputRows rows = ValueOrRaise(RowsOf(arrays[i], spec));
    items.push_back({.key = names[i],
                     .rows = rows.rows,
                     .tokens = rows.tokens,
                     .metadata = metadata,
                     .owner = HoldPython(nb::cast(arrays[i], nb::rv_policy::reference))});
  }
  return Store(spec, std::move(items));
}

CopyHandle Cache::StoreRows(nb::sequence keys, const std::vector<uintptr_t>& addresses,
                            const std::vector<uint64_t>& tokens,
                            const std::vector<nb::object>& owners, const std::string& modality) {
  const EmbeddingSpec spec = SpecOf(modality);
  const std::vector<EmbeddingKey> names = ToStoreKeys(keys, spec, nullptr);
  if (addresses.size() != names.size() || tokens.size() != names.size() ||
      owners.size() != names.size()) {
    Raise(
        Status::Invalid(fmt::format("{} keys, {} addresses, {} token counts and {} owners; give "
                                    "one of each",
                                    names.size(), addresses.size(), tokens.size(), owners.size())));
  }
  std::vector<PoolItem> items;
  for (size_t i = 0; i < names.size(); ++i) {
    items.push_back(
        {.key = names[i],
         .rows = {reinterpret_cast<const std::byte*>(addresses[i]), tokens[i] * spec.row_bytes()},
         .tokens = tokens[i],
         .owner = HoldPython(owners[i])});
  }
  return Store(spec, std::move(items));
}

CopyHandle Cache::Store(const EmbeddingSpec& spec, std::vector<PoolItem> items) {
  EmbeddingCacheController& controller = Use();
  uint64_t bytes = 0;
  for (const PoolItem& item : items) bytes += item.rows.size();
  const NoGil no_gil;
  const CopyThreads::Scope scope(bytes);
  return controller.StoreToPoolAsync(spec, std::move(items));
}

CopyHandle Cache::Load(nb::object key, nb::ndarray<nb::c_contig, nb::device::cpu> destination,
                       uint64_t row_offset) {
  EmbeddingCacheController& controller = Use();
  const EmbeddingKey name = ToKey(key);
  const embercache::Pin pin = controller.TryPin(name);
  if (!pin) return nullptr;
  const EmbeddingInfo& info = pin.info();
  const nb::dlpack::dtype dtype = destination.dtype();
  const bool fits = destination.ndim() == 2 && destination.shape(1) == info.spec.hidden &&
                    row_offset <= destination.shape(0) &&
                    info.tokens <= destination.shape(0) - row_offset &&
                    (dtype == DlpackDType(info.spec.dtype) || dtype == NumpyDType(info.spec.dtype));
  if (!fits) {
    Raise(Status::Invalid(
        fmt::format("the destination has to be a contiguous array [at least {}, {}] of {}",
                    row_offset + info.tokens, info.spec.hidden, DTypeName(info.spec.dtype))));
  }
  auto* const to = static_cast<std::byte*>(destination.data_handle()) + destination.byte_offset() +
                   row_offset * info.spec.row_bytes();
  std::shared_ptr<const void> owner = HoldPython(nb::cast(destination, nb::rv_policy::reference));
  const NoGil no_gil;
  const CopyThreads::Scope scope(info.payload_bytes());
  return controller.LoadToDeviceAsync(name, {to, info.payload_bytes()}, std::move(owner));
}

CopyHandle Cache::LoadRows(nb::object key, uintptr_t address, uint64_t rows, uint64_t hidden,
                           nb::object owner) {
  EmbeddingCacheController& controller = Use();
  const EmbeddingKey name = ToKey(key);
  const embercache::Pin pin = controller.TryPin(name);
  if (!pin) return nullptr;
  const EmbeddingInfo& info = pin.info();
  const uint64_t bytes = info.payload_bytes();
  if (info.tokens > rows || info.spec.hidden != hidden) {
    Raise(
        Status::Invalid(fmt::format("the destination has room for [{}, {}], and the embedding is "
                                    "[{}, {}]",
                                    rows, hidden, info.tokens, info.spec.hidden)));
  }
  std::shared_ptr<const void> held = HoldPython(std::move(owner));
  const NoGil no_gil;
  const CopyThreads::Scope scope(bytes);
  return controller.LoadToDeviceAsync(name, {reinterpret_cast<std::byte*>(address), bytes},
                                      std::move(held));
}

std::vector<std::string> Cache::WaitCopies(const CopyHandle& handle, double timeout_s) {
  std::vector<CopyOutcome> outcomes;
  {
    const NoGil no_gil;
    outcomes = EmbeddingCacheController::WaitCopies(handle, DeadlineIn(timeout_s));
  }
  std::vector<std::string> names;
  for (const CopyOutcome outcome : outcomes) names.push_back(CopyName(outcome));
  return names;
}

}  // namespace embercache::python
