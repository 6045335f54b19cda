#include <fmt/format.h>
#include <nanobind/stl/pair.h>

#include <array>
#include <utility>

#include "embercache/store_factory.h"
#include "python/src/cache.h"
#include "src/cache/byte_store.h"
#include "src/store/raw_format.h"
#include "src/store/state_name.h"

// Stores as Python opens them, and as callers that know only bytes use them.

namespace embercache::python {
namespace {

using Pointers = std::vector<std::vector<uintptr_t>>;
using Sizes = std::vector<std::vector<uint64_t>>;

const EmbeddingStoreFactory& Factory() {
  static const auto* const factory = [] {
    auto* const made = new EmbeddingStoreFactory;
    RegisterBuiltinBackends(*made);
    return made;
  }();
  return *factory;
}

std::shared_ptr<NativeStore> OpenStore(const std::string& backend, const std::string& config) {
  StoreConfig store_config;
  store_config.json = config;
  Result<std::unique_ptr<EmbeddingStore>> store = Status::Internal("not opened");
  {
    const nb::gil_scoped_release no_gil;
    store = Factory().CreateBackend(backend, store_config);
  }
  return std::make_shared<NativeStore>(backend, ValueOrRaise(std::move(store)));
}

// A ByteStore with a time limit for each call.
class TimedByteStore {
 public:
  TimedByteStore(std::shared_ptr<NativeStore> native, const Digest256& namespace_digest,
                 double timeout_s)
      : native_(std::move(native)),
        bytes_(native_->store, namespace_digest),
        timeout_s_(timeout_s) {}

  std::vector<bool> Get(const std::vector<std::string>& hashes, const Pointers& pointers,
                        const Sizes& sizes) {
    Check(hashes, pointers, sizes);
    std::vector<ByteGetItem> items;
    for (size_t i = 0; i < hashes.size(); ++i) {
      ByteGetItem& item = items.emplace_back(ByteGetItem{.hash = hashes[i], .buffers = {}});
      for (size_t n = 0; n < pointers[i].size(); ++n) {
        item.buffers.emplace_back(reinterpret_cast<std::byte*>(pointers[i][n]), sizes[i][n]);
      }
    }
    std::vector<bool> found(items.size());
    const nb::gil_scoped_release no_gil;
    const std::vector<GetOutcome> outcomes = bytes_.Get(items, Context());
    for (size_t i = 0; i < found.size(); ++i) found[i] = outcomes[i] == GetOutcome::kHit;
    return found;
  }

  std::vector<bool> Put(const std::vector<std::string>& hashes, const Pointers& pointers,
                        const Sizes& sizes) {
    Check(hashes, pointers, sizes);
    std::vector<BytePutItem> items;
    for (size_t i = 0; i < hashes.size(); ++i) {
      BytePutItem& item = items.emplace_back(BytePutItem{.hash = hashes[i], .buffers = {}});
      for (size_t n = 0; n < pointers[i].size(); ++n) {
        item.buffers.emplace_back(reinterpret_cast<const std::byte*>(pointers[i][n]), sizes[i][n]);
      }
    }
    std::vector<bool> stored(items.size());
    const nb::gil_scoped_release no_gil;
    const std::vector<PutResult> results = bytes_.Put(items, Context());
    for (size_t i = 0; i < stored.size(); ++i) {
      stored[i] = results[i].outcome != PutOutcome::kFailed;
    }
    return stored;
  }

  std::vector<bool> Exist(const std::vector<std::string>& hashes) {
    native_->fork.Check("store");
    const nb::gil_scoped_release no_gil;
    return bytes_.Exist(hashes, Context());
  }

  std::string KeyText(const std::string& hash) const { return bytes_.KeyText(hash); }

  void RegisterBuffer(uintptr_t address, uint64_t bytes) {
    native_->fork.Check("store");
    Status status;
    {
      const nb::gil_scoped_release no_gil;
      status = native_->store->RegisterBuffer(
          {.memory = {reinterpret_cast<std::byte*>(address), bytes}});
    }
    RaiseIfError(status);
  }

 private:
  CallContext Context() const { return {.deadline = DeadlineIn(timeout_s_)}; }

  void Check(const std::vector<std::string>& hashes, const Pointers& pointers,
             const Sizes& sizes) const {
    native_->fork.Check("store");
    bool equal = hashes.size() == pointers.size() && hashes.size() == sizes.size();
    for (size_t i = 0; equal && i < hashes.size(); ++i) {
      equal = pointers[i].size() == sizes[i].size();
    }
    if (equal) return;
    Raise(Status::Invalid(fmt::format(
        "{} hashes, {} lists of pointers and {} of sizes; give one of each for each hash, with as "
        "many sizes as pointers",
        hashes.size(), pointers.size(), sizes.size())));
  }

  const std::shared_ptr<NativeStore> native_;
  ByteStore bytes_;
  const double timeout_s_;
};

Digest256 ToDigest(const nb::bytes& bytes) {
  Digest256 digest;
  if (bytes.size() != digest.bytes.size()) {
    Raise(Status::Invalid(fmt::format("a namespace digest of {} bytes; it has 32", bytes.size())));
  }
  std::memcpy(digest.bytes.data(), bytes.c_str(), digest.bytes.size());
  return digest;
}

}  // namespace

void BindStores(nb::module_& module) {
  module.def(
      "backend_names", [] { return Factory().BackendNames(); }, "The built-in backends, sorted.");
  module.def("open_store", &OpenStore, nb::arg("backend"), nb::arg("config") = "{}",
             "Opens a built-in backend. ``config`` is a JSON object as text. InvalidError for an "
             "unknown backend or option lists\nthose there are. A remote peer that does not answer "
             "is no error.");
  nb::class_<NativeStore>(module, "Store",
                          "A built-in backend that is open. Caches may share it. Thread-safe.")
      .def_ro("backend", &NativeStore::backend, "Its name.")
      .def_prop_ro(
          "raw", [](const NativeStore& store) { return IsRaw(*store.store); },
          "Whether its objects are rows alone, under the hashes as they are given.")
      .def_prop_ro(
          "health",
          [](const NativeStore& store) {
            store.fork.Check("store");
            const StoreHealth health = store.store->Health();
            return std::make_pair(std::string(StateName(health.state)), health.detail);
          },
          "``(\"up\" | \"starting\" | \"down\", detail)``, as far as it is known; never waits.")
      .def(
          "describe", [](const NativeStore& store) { return store.store->DescribeJson(); },
          "What is in use, as JSON, without secrets.")
      .def(
          "close",
          [](const NativeStore& store, double timeout_s) {
            store.fork.Check("store");
            Status status;
            {
              const nb::gil_scoped_release no_gil;
              status = store.store->Close(DeadlineIn(timeout_s));
            }
            RaiseIfError(status);
          },
          nb::arg("timeout_s") = 5.0,
          "Lets its resources go; calls answer CancelledError then. DeadlineExceededError when "
          "calls were still running. Idempotent.");
  nb::class_<TimedByteStore>(
      module, "ByteStore",
      "A store for controllers that are not ours and know embeddings only as bytes under a hash: "
      "keys of a namespace,\nenvelopes without a shape, and verification of all that is read.\n\n"
      "Each call takes for each hash a list of addresses and one of sizes in bytes, and answers "
      "exactly one bool a hash.")
      .def(
          "__init__",
          [](TimedByteStore* self, std::shared_ptr<NativeStore> store, const nb::bytes& digest,
             double timeout_s) {
            new (self) TimedByteStore(std::move(store), ToDigest(digest), timeout_s);
          },
          nb::arg("store"), nb::arg("namespace_digest"), nb::arg("timeout_s") = 30.0)
      .def("get", &TimedByteStore::Get, nb::arg("hashes"), nb::arg("pointers"), nb::arg("sizes"),
           "Reads into the buffers. True: verified, and there.")
      .def("put", &TimedByteStore::Put, nb::arg("hashes"), nb::arg("pointers"), nb::arg("sizes"),
           "Stores what the buffers hold, unless the key is there. True: it is in the store.")
      .def("exist", &TimedByteStore::Exist, nb::arg("hashes"), "Whether each is there, as a hint.")
      .def("key_text", &TimedByteStore::KeyText, nb::arg("hash"), "The key in the store.")
      .def("register_buffer", &TimedByteStore::RegisterBuffer, nb::arg("address"),
           nb::arg("nbytes"), "Announces memory that later buffers lie in.");
}

}  // namespace embercache::python
