#include "python/src/python_store.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <exception>
#include <utility>
#include <vector>

namespace embercache::python {
namespace {

// Of an exception's text, which begins with the traceback.
std::string LastLine(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

PythonStore::PythonStore(const nb::object& store)
    : store_(HoldPython(store)),
      name_(nb::cast<std::string>(nb::str(store.type().attr("__name__")))) {}

Result<std::vector<bool>> PythonStore::Call(
    const char* method, std::span<const std::string_view> hashes,
    std::span<const std::vector<ConstBuffer>> buffers) const {
  {
    MutexLock lock(mutex_);
    if (closed_) return Status::Cancelled("the store is closed");
  }
  const Gil gil;
  if (!gil) return Status::Cancelled("the interpreter goes down");
  try {
    nb::list texts, pointers, sizes;
    for (const std::string_view hash : hashes) texts.append(nb::str(hash.data(), hash.size()));
    for (const std::vector<ConstBuffer>& item : buffers) {
      nb::list item_pointers, item_sizes;
      for (const ConstBuffer& buffer : item) {
        item_pointers.append(nb::int_(reinterpret_cast<uintptr_t>(buffer.data())));
        item_sizes.append(nb::int_(buffer.size()));
      }
      pointers.append(item_pointers);
      sizes.append(item_sizes);
    }
    const nb::object function = nb::handle(static_cast<const PyObject*>(store_.get())).attr(method);
    const nb::object answer = buffers.empty() ? function(texts) : function(texts, pointers, sizes);
    std::vector<bool> found;
    if (!answer.is_none()) {
      for (const nb::handle item : answer) found.push_back(nb::cast<bool>(nb::bool_(item)));
    }
    if (found.size() == hashes.size()) return found;
    return Status::Internal(
        fmt::format("{}.{} answered {} of {} items", name_, method, found.size(), hashes.size()));
  } catch (const std::exception& error) {
    return Status::Internal(fmt::format("{}.{} raised {}", name_, method, LastLine(error.what())));
  }
}

std::vector<StatResult> PythonStore::BatchIsExist(std::span<const std::string_view> keys,
                                                  const CallContext&) {
  std::vector<StatResult> results(keys.size());
  const auto found = Call("batch_is_exist", keys, {});
  for (size_t i = 0; i < keys.size(); ++i) {
    results[i].status = found.status();
    results[i].found = found.ok() && (*found)[i];
  }
  return results;
}

std::vector<StatResult> PythonStore::BatchStat(std::span<const std::string_view> keys,
                                               const CallContext&) {
  std::vector<StatResult> results(keys.size());
  for (StatResult& result : results) {
    result.status = Status::Unimplemented("a store written in Python does not know sizes");
  }
  return results;
}

std::vector<GetResult> PythonStore::BatchGetIntoMultiBuffers(std::span<const GetItem> items,
                                                             const CallContext&) {
  std::vector<std::string_view> hashes;
  std::vector<std::vector<ConstBuffer>> buffers;
  for (const GetItem& item : items) {
    hashes.push_back(item.key);
    buffers.emplace_back(item.buffers.begin(), item.buffers.end());
  }
  const auto found = Call("batch_get_into_multi_buffers", hashes, buffers);
  std::vector<GetResult> results(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    results[i].status = found.status();
    if (found.ok()) results[i].outcome = (*found)[i] ? GetOutcome::kHit : GetOutcome::kMiss;
  }
  return results;
}

std::vector<PutResult> PythonStore::BatchPutFromMultiBuffers(std::span<const PutItem> items,
                                                             const CallContext&) {
  std::vector<std::string_view> hashes;
  std::vector<std::vector<ConstBuffer>> buffers;
  for (const PutItem& item : items) {
    hashes.push_back(item.key);
    buffers.emplace_back(item.buffers.begin(), item.buffers.end());
  }
  const auto stored = Call("batch_put_from_multi_buffers", hashes, buffers);
  std::vector<PutResult> results(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    results[i].status = stored.status();
    if (!stored.ok()) continue;
    if ((*stored)[i]) {
      results[i].outcome = PutOutcome::kAccepted;
    } else {
      results[i].status = Status::Unavailable(fmt::format("{} did not store the item", name_));
    }
  }
  return results;
}

std::vector<RemoveResult> PythonStore::BatchRemove(std::span<const RemoveItem> items,
                                                   const CallContext&) {
  std::vector<RemoveResult> results(items.size());
  for (RemoveResult& result : results) {
    result.status = Status::Unimplemented("a store written in Python has no removal");
  }
  return results;
}

Status PythonStore::RegisterBuffer(const BufferRegion& region) {
  const Gil gil;
  if (!gil) return Status::Ok();
  try {
    nb::module_::import_("embercache._raw")
        .attr("register_buffer")(nb::handle(static_cast<const PyObject*>(store_.get())),
                                 reinterpret_cast<uintptr_t>(region.memory.data()),
                                 region.memory.size());
    return Status::Ok();
  } catch (const std::exception& error) {
    return Status::Internal(fmt::format("{}.register_buffer raised {}", name_, error.what()));
  }
}

Status PythonStore::Close(TimePoint) {
  MutexLock lock(mutex_);
  closed_ = true;
  return Status::Ok();
}

}  // namespace embercache::python
