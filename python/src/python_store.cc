#include "python/src/python_store.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "src/cache/envelope.h"
#include "src/memory/page_pool.h"

namespace embercache::python {
namespace {

constexpr size_t kNamesAGeneration = 65536;

// The first `bytes` bytes of `buffers`.
template <typename Buffer>
std::vector<Buffer> Head(std::span<const Buffer> buffers, uint64_t bytes) {
  std::vector<Buffer> head;
  for (const Buffer& buffer : buffers) {
    if (bytes == 0) break;
    const uint64_t taken = std::min<uint64_t>(bytes, buffer.size());
    head.push_back(buffer.first(taken));
    bytes -= taken;
  }
  return head;
}

// Of an exception's text, which begins with the traceback.
std::string LastLine(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

Status Unknown(std::string_view key) {
  return Status::Unimplemented(
      fmt::format("the hash of key {} is not known, and a store in raw format needs it", key));
}

}  // namespace

// The arguments of one call, and its answers.
struct PythonStore::Batch {
  std::vector<size_t> indices;  // of the items that are asked for
  std::vector<std::string> hashes;
  std::vector<std::vector<ConstBuffer>> buffers;  // empty for calls without
  std::vector<bool> found;
};

PythonStore::PythonStore(const nb::object& store)
    : store_(HoldPython(store)),
      name_(nb::cast<std::string>(nb::str(store.type().attr("__name__")))) {}

void PythonStore::Remember(const EmbeddingKey& key, std::string_view hash,
                           const EmbeddingSpec& spec, uint64_t tokens) {
  MutexLock lock(mutex_);
  const std::string text = key.Text();
  // Who does not know the size must not take it from a fetch under way.
  if (tokens == 0 && recent_.contains(text)) return;
  if (recent_.size() >= kNamesAGeneration) older_ = std::exchange(recent_, {});
  const auto older = older_.find(text);
  if (tokens == 0 && older != older_.end()) {
    recent_.insert_or_assign(text, older->second);
  } else {
    recent_.insert_or_assign(text, Name{key, std::string(hash), spec, tokens});
  }
}

bool PythonStore::Find(std::string_view key, Name* name) const {
  MutexLock lock(mutex_);
  const std::string text(key);
  for (const Names* names : {&recent_, &older_}) {
    if (const auto it = names->find(text); it != names->end()) {
      *name = it->second;
      return true;
    }
  }
  return false;
}

Status PythonStore::Call(const char* method, Batch* batch) const {
  {
    MutexLock lock(mutex_);
    if (closed_) return Status::Cancelled("the store is closed");
  }
  if (!InterpreterIsUp()) return Status::Cancelled("the interpreter goes down");
  if (batch->hashes.empty()) return Status::Ok();
  const nb::gil_scoped_acquire gil;
  try {
    nb::list hashes, pointers, sizes;
    for (const std::string& hash : batch->hashes) hashes.append(nb::str(hash.c_str(), hash.size()));
    for (const std::vector<ConstBuffer>& buffers : batch->buffers) {
      nb::list item_pointers, item_sizes;
      for (const ConstBuffer& buffer : buffers) {
        item_pointers.append(nb::int_(reinterpret_cast<uintptr_t>(buffer.data())));
        item_sizes.append(nb::int_(buffer.size()));
      }
      pointers.append(item_pointers);
      sizes.append(item_sizes);
    }
    const nb::object function = nb::handle(static_cast<const PyObject*>(store_.get())).attr(method);
    const nb::object answer =
        batch->buffers.empty() ? function(hashes) : function(hashes, pointers, sizes);
    size_t answers = 0;
    if (!answer.is_none()) {
      for (const nb::handle item : answer) {
        batch->found.push_back(nb::cast<bool>(nb::bool_(item)));
        ++answers;
      }
    }
    if (answers == batch->hashes.size()) return Status::Ok();
    return Status::Internal(
        fmt::format("{}.{} answered {} of {} items", name_, method, answers, batch->hashes.size()));
  } catch (const std::exception& error) {
    return Status::Internal(fmt::format("{}.{} raised {}", name_, method, LastLine(error.what())));
  }
}

std::vector<StatResult> PythonStore::BatchIsExist(std::span<const std::string_view> keys,
                                                  const CallContext&) {
  std::vector<StatResult> results(keys.size());
  Batch batch;
  for (size_t i = 0; i < keys.size(); ++i) {
    Name name;
    if (!Find(keys[i], &name)) {
      results[i].status = Unknown(keys[i]);
      continue;
    }
    batch.indices.push_back(i);
    batch.hashes.push_back(std::move(name.hash));
  }
  const Status status = Call("batch_is_exist", &batch);
  for (size_t n = 0; n < batch.indices.size(); ++n) {
    StatResult& result = results[batch.indices[n]];
    result.status = status;
    result.found = status.ok() && batch.found[n];
  }
  return results;
}

std::vector<StatResult> PythonStore::BatchStat(std::span<const std::string_view> keys,
                                               const CallContext&) {
  std::vector<StatResult> results(keys.size());
  for (StatResult& result : results) {
    result.status = Status::Unimplemented("a store in raw format does not know sizes");
  }
  return results;
}

std::vector<GetResult> PythonStore::BatchGetIntoMultiBuffers(std::span<const GetItem> items,
                                                             const CallContext&) {
  std::vector<GetResult> results(items.size());
  Batch batch;
  std::vector<Name> names;
  for (size_t i = 0; i < items.size(); ++i) {
    Name name;
    if (!Find(items[i].key, &name) || name.tokens == 0) {
      results[i].status = Unknown(items[i].key);
      continue;
    }
    const uint64_t payload_bytes = name.tokens * name.spec.row_bytes();
    uint64_t bytes = 0;
    for (const MutableBuffer& buffer : items[i].buffers) bytes += buffer.size();
    if (bytes != ObjectBytes(payload_bytes, 0)) {
      results[i].outcome = GetOutcome::kMiss;
      continue;
    }
    batch.indices.push_back(i);
    batch.hashes.push_back(name.hash);
    const std::vector<MutableBuffer> payload = Head(items[i].buffers, payload_bytes);
    batch.buffers.emplace_back(payload.begin(), payload.end());
    names.push_back(std::move(name));
  }
  const Status status = Call("batch_get_into_multi_buffers", &batch);
  for (size_t n = 0; n < batch.indices.size(); ++n) {
    GetResult& result = results[batch.indices[n]];
    const GetItem& item = items[batch.indices[n]];
    result.status = status;
    if (!status.ok()) continue;
    result.outcome = batch.found[n] ? GetOutcome::kHit : GetOutcome::kMiss;
    if (!batch.found[n]) continue;
    Trailer trailer;
    trailer.info = {.key = names[n].key, .spec = names[n].spec, .tokens = names[n].tokens};
    trailer.payload_bytes = trailer.info.payload_bytes();
    trailer.checksum = ChecksumOf(batch.buffers[n]);
    // The rest of the payload's last buffer is padding.
    const MutableBuffer last = item.buffers[item.buffers.size() - 2];
    const uint64_t padding = PaddedBytes(trailer.payload_bytes) - trailer.payload_bytes;
    std::memset(last.last(padding).data(), 0, padding);
    EncodeTrailer(trailer, item.buffers.back());
    result.bytes = ObjectBytes(trailer.payload_bytes, 0);
  }
  return results;
}

std::vector<PutResult> PythonStore::BatchPutFromMultiBuffers(std::span<const PutItem> items,
                                                             const CallContext&) {
  std::vector<PutResult> results(items.size());
  Batch batch;
  for (size_t i = 0; i < items.size(); ++i) {
    Name name;
    Trailer trailer;
    if (!Find(items[i].key, &name)) {
      results[i].status = Unknown(items[i].key);
      continue;
    }
    if (DecodeTrailer(items[i].buffers.back(), &trailer) != TrailerVerdict::kGood) {
      results[i].status = Status::Internal("an embedding without a trailer");
      continue;
    }
    batch.indices.push_back(i);
    batch.hashes.push_back(std::move(name.hash));
    batch.buffers.push_back(Head(items[i].buffers, trailer.payload_bytes));
  }
  const Status status = Call("batch_put_from_multi_buffers", &batch);
  for (size_t n = 0; n < batch.indices.size(); ++n) {
    PutResult& result = results[batch.indices[n]];
    result.status = status;
    if (status.ok() && batch.found[n]) result.outcome = PutOutcome::kAccepted;
    if (status.ok() && !batch.found[n]) {
      result.status = Status::Unavailable(fmt::format("{} did not store the item", name_));
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
  if (!InterpreterIsUp()) return Status::Ok();
  const nb::gil_scoped_acquire gil;
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
