#include <fmt/format.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>

#include <cstring>
#include <memory>

#include "python/src/cache.h"

namespace embercache::python {
namespace {

// A reduction that Python does: values, as bytes, to the minimum over the ranks.
std::shared_ptr<TpGroup> MakeTpGroup(int rank, int size, nb::object reduce) {
  std::shared_ptr<const void> held = HoldPython(std::move(reduce));
  return NewCallbackTpGroup(
      rank, size,
      [held](std::span<const uint8_t> values, TimePoint) -> Result<std::vector<uint8_t>> {
        if (!InterpreterIsUp()) return Status::Cancelled("the interpreter goes down");
        const nb::gil_scoped_acquire gil;
        try {
          const nb::bytes given(values.data(), values.size());
          const nb::object answer = nb::handle(static_cast<const PyObject*>(held.get()))(given);
          const nb::bytes reduced = nb::cast<nb::bytes>(answer);
          const auto* const data = static_cast<const uint8_t*>(reduced.data());
          return std::vector<uint8_t>(data, data + reduced.size());
        } catch (const std::exception& error) {
          return Status::Unavailable(fmt::format("the ranks' reduction raised {}", error.what()));
        }
      });
}

void MakeCache(Cache* self, nb::object store, const nb::bytes& namespace_digest,
               std::map<std::string, uint32_t> hidden, std::string dtype, uint64_t max_pool_bytes,
               uint64_t max_uncached_bytes, bool enable_eviction, uint32_t max_eviction_batch,
               double lookup_timeout_s, double publish_timeout_s, double publish_confirm_s,
               double request_ttl_s, bool prefault, std::optional<std::tuple<int, int>> tp,
               nb::object reduce) {
  CacheSettings settings;
  if (namespace_digest.size() != settings.namespace_digest.bytes.size()) {
    Raise(Status::Invalid(
        fmt::format("a namespace digest of {} bytes; it has 32", namespace_digest.size())));
  }
  std::memcpy(settings.namespace_digest.bytes.data(), namespace_digest.c_str(),
              settings.namespace_digest.bytes.size());
  settings.hidden = std::move(hidden);
  settings.dtype = std::move(dtype);
  settings.max_pool_bytes = max_pool_bytes;
  settings.max_uncached_bytes = max_uncached_bytes;
  settings.enable_eviction = enable_eviction;
  settings.max_eviction_batch = max_eviction_batch;
  settings.lookup_timeout_s = lookup_timeout_s;
  settings.publish_timeout_s = publish_timeout_s;
  settings.publish_confirm_s = publish_confirm_s;
  settings.request_ttl_s = request_ttl_s;
  settings.prefault = prefault;
  if (tp) settings.tp_group = MakeTpGroup(std::get<0>(*tp), std::get<1>(*tp), std::move(reduce));
  new (self) Cache(settings, std::move(store));
}

// Wrapped, since nanobind does not know the incomplete type behind a CopyHandle.
struct Copies {
  CopyHandle handle;
};

}  // namespace

void BindCache(nb::module_& module) {
  nb::class_<Copies>(module, "Copies",
                     "Copies under way. Dropping it leaves them to end by themselves.")
      .def(
          "wait",
          [](const Copies& copies, double timeout_s) {
            return Cache::WaitCopies(copies.handle, timeout_s);
          },
          nb::arg("timeout_s") = 60.0,
          "Waits without the GIL; an outcome an item: ``copied``, ``present`` (it was ready "
          "already), ``joined`` (another is\nfilling it), ``no_room``, ``missing``, ``failed``, or "
          "``pending`` when the time is over.");
  nb::class_<Cache>(
      module, "Cache",
      "The cache of one model on this node: host memory in front of an optional store.\n\n"
      "Made by :func:`embercache.open`. Thread-safe. All that may block drops the GIL. A key is a "
      ":class:`Key`, or a\ncaller's hash as a ``str``. Modalities are ``\"image\"``, ``\"video\"`` "
      "and ``\"audio\"``. In a forked child every call\nraises ForkError; after close() every call "
      "but close() raises CancelledError.")
      .def(
          "__init__", &MakeCache, nb::arg("store").none(), nb::arg("namespace_digest"),
          nb::arg("hidden"), nb::arg("dtype"), nb::arg("max_pool_bytes"),
          nb::arg("max_uncached_bytes") = uint64_t{256} << 20, nb::arg("enable_eviction") = true,
          nb::arg("max_eviction_batch") = 100, nb::arg("lookup_timeout_s") = 0.5,
          nb::arg("publish_timeout_s") = 30.0, nb::arg("publish_confirm_s") = 0.0,
          nb::arg("request_ttl_s") = 600.0, nb::arg("prefault") = true, nb::arg("tp") = nb::none(),
          nb::arg("reduce") = nb::none(),
          "``store``: a Store, an object with SGLang's EmbeddingStore methods, or None. "
          "``hidden``: elements a row for each\nmodality. ``tp``: (rank, size) of ranks that agree "
          "on prefetches by ``reduce``, which gets bytes and gives their\nelement-wise minimum "
          "over the ranks.")
      .def("key", &Cache::Key, nb::arg("hash"), "The key of a caller's own name for an item.")
      .def("media_key", &Cache::MediaKey, nb::arg("media"), nb::arg("modality") = "image",
           nb::arg("options") = "",
           "The key of media given as bytes, as they were uploaded. ``options``: canonical text of "
           "the options that change the\nresult. The encode server uses the same keys.")
      .def("get_many", &Cache::GetMany, nb::arg("keys"), nb::arg("modality") = "image",
           nb::arg("expected_tokens") = nb::none(), nb::arg("timeout_s") = nb::none(),
           nb::sig("def get_many(self, keys: collections.abc.Sequence[Key | str], modality: str = "
                   "'image', expected_tokens: collections.abc.Sequence[int] | None = None, "
                   "timeout_s: float | None = None) -> list[Embedding | None]"),
           "Looks all keys up here and, in one batch, in the store. None is a miss, also where the "
           "store was down or too slow.\n``expected_tokens``: rows, where they are known, which "
           "saves a request to the store; -1 for an item's that are not.")
      .def(
          "get",
          [](Cache& cache, nb::object key, const std::string& modality, int64_t expected_tokens,
             std::optional<double> timeout_s) -> nb::object {
            nb::list keys;
            keys.append(key);
            return cache.GetMany(nb::borrow<nb::sequence>(keys), modality,
                                 std::vector{expected_tokens}, timeout_s)[0];
          },
          nb::arg("key"), nb::arg("modality") = "image", nb::arg("expected_tokens") = -1,
          nb::arg("timeout_s") = nb::none(),
          nb::sig("def get(self, key: Key | str, modality: str = 'image', expected_tokens: int = "
                  "-1, timeout_s: float | None = None) -> Embedding | None"),
          "The one embedding, as by :meth:`get_many`.")
      .def("get_or_compute", &Cache::GetOrCompute, nb::arg("key"), nb::arg("compute"),
           nb::arg("modality") = "image", nb::arg("expected_tokens") = -1, nb::arg("wait_s") = 60.0,
           nb::arg("publish") = true, nb::arg("metadata") = "",
           nb::sig("def get_or_compute(self, key: Key | str, compute: "
                   "collections.abc.Callable[[], object], modality: str = 'image', "
                   "expected_tokens: int = -1, wait_s: float = 60.0, publish: bool = True, "
                   "metadata: str = '') -> Embedding"),
           "The embedding, from here, from the store, or from ``compute()``, which gives an array "
           "``[tokens, hidden]`` of the\ncache's dtype in host memory (BF16 also as uint16). Of "
           "several calls for one key one computes, and the others wait\nfor it up to ``wait_s`` "
           "seconds (DeadlineExceededError). What ``compute`` raises is raised. With ``publish`` a "
           "computed\none is offered to the store, without waiting.")
      .def("pin", &Cache::Pin, nb::arg("key"),
           nb::sig("def pin(self, key: Key | str) -> Embedding | None"),
           "What is in host memory now, or None; never asks the store.")
      .def("has_local", &Cache::HasLocal, nb::arg("key"),
           nb::sig("def has_local(self, key: Key | str) -> bool"), "Whether it is in host memory.")
      .def("exists", &Cache::Exists, nb::arg("keys"), nb::arg("timeout_s") = nb::none(),
           nb::sig("def exists(self, keys: collections.abc.Sequence[Key | str], timeout_s: float | "
                   "None = None) -> list[bool]"),
           "Whether each is here or, as a hint, in the store. A store that does not answer has "
           "nothing.")
      .def("exists_here", &Cache::ExistsHere, nb::arg("keys"),
           nb::sig("def exists_here(self, keys: collections.abc.Sequence[Key | str]) -> list[bool] "
                   "| None"),
           "What exists answers, where no store has to be asked for it; else None. Never waits.")
      .def("publish", &Cache::Publish, nb::arg("keys"),
           nb::sig("def publish(self, keys: collections.abc.Sequence[Key | str]) -> tuple[int, "
                   "int, int]"),
           "Offers all that are ready to the store in one batch, and does not wait for it: "
           "``(new, existing, skipped)``,\nwhere skipped ones are not ready.")
      .def("remove", &Cache::Remove, nb::arg("key"), nb::arg("timeout_s") = 5.0,
           nb::sig("def remove(self, key: Key | str, timeout_s: float = 5.0) -> str"),
           "From host memory and from the store: ``removed``, ``absent`` or ``changed``; raises "
           "what the store said.")
      .def("prefetch", &Cache::Prefetch, nb::arg("req_id"), nb::arg("keys"),
           nb::arg("expected_tokens"), nb::arg("modality") = "image",
           nb::sig("def prefetch(self, req_id: str, keys: collections.abc.Sequence[Key | str], "
                   "expected_tokens: collections.abc.Sequence[int], modality: str = 'image') -> "
                   "None"),
           "Fetches what is not here, for a request, which keeps pins of all that became ready "
           "until release_request.\nAlreadyExistsError for a request that is known.")
      .def("prefetch_state", &Cache::PrefetchState, nb::arg("req_id"), nb::arg("wait_s") = 0.0,
           "``pending``, ``done`` (also for a request that is not known) or ``expired``; waits for "
           "the end up to ``wait_s``.")
      .def("prefetch_outcomes", &Cache::PrefetchOutcomes, nb::arg("req_id"),
           "Of each item: ``pending``, ``local``, ``global``, ``joined``, ``missing``, ``no_room`` "
           "or ``failed``.")
      .def("release_request", &Cache::ReleaseRequest, nb::arg("req_id"),
           "Gives the request's pins back. False for one that is not known.")
      .def("prefetch_until_used", &Cache::PrefetchUntilUsed, nb::arg("req_id"), nb::arg("keys"),
           nb::arg("expected_tokens"), nb::arg("modality") = "image",
           nb::sig("def prefetch_until_used(self, req_id: str, keys: "
                   "collections.abc.Sequence[Key | str], expected_tokens: "
                   "collections.abc.Sequence[int], modality: str = 'image') -> None"),
           "As prefetch, for a request that is never released: its pins go once each embedding was "
           "used, after\nprefetch_ended, or by age. A request may do so several times.")
      .def("prefetch_ended", &Cache::PrefetchEnded, nb::arg("req_id"), nb::arg("wait_s") = 0.0,
           "Whether all that prefetch_until_used began for the request has ended; waits for it up "
           "to ``wait_s``.")
      .def("used", &Cache::Used, nb::arg("keys"),
           nb::sig("def used(self, keys: collections.abc.Sequence[Key | str]) -> None"),
           "Somebody has read these: of each the oldest request of prefetch_until_used needs it no "
           "more.")
      .def(
          "store_to_pool",
          [](Cache& cache, nb::sequence keys, const std::vector<InputArray>& arrays,
             const std::string& modality, const std::string& metadata) {
            return Copies{cache.StoreToPool(keys, arrays, modality, metadata)};
          },
          nb::arg("keys"), nb::arg("arrays"), nb::arg("modality") = "image",
          nb::arg("metadata") = "",
          nb::sig("def store_to_pool(self, keys: collections.abc.Sequence[Key | str], arrays: "
                  "collections.abc.Sequence[object], modality: str = 'image', metadata: str = '') "
                  "-> Copies"),
          "Copies arrays ``[tokens, hidden]`` of the cache's dtype into host memory, in the "
          "background; each is ready once its\ncopy is done. The arrays are kept until then.")
      .def(
          "load",
          [](Cache& cache, nb::object key, nb::ndarray<nb::c_contig, nb::device::cpu> destination,
             uint64_t row_offset) -> std::optional<Copies> {
            CopyHandle handle = cache.Load(std::move(key), std::move(destination), row_offset);
            if (!handle) return std::nullopt;
            return Copies{std::move(handle)};
          },
          nb::arg("key"), nb::arg("destination").noconvert(), nb::arg("row_offset") = 0,
          nb::sig("def load(self, key: Key | str, destination: object, row_offset: int = 0) -> "
                  "Copies | None"),
          "Copies one embedding into a contiguous array ``[rows, hidden]`` from a row on, in the "
          "background. None where it is\nnot in host memory.")
      .def(
          "store_rows",
          [](Cache& cache, nb::sequence keys, const std::vector<uintptr_t>& addresses,
             const std::vector<uint64_t>& tokens, const std::vector<nb::object>& owners,
             const std::string& modality) {
            return Copies{cache.StoreRows(keys, addresses, tokens, owners, modality)};
          },
          nb::arg("keys"), nb::arg("addresses"), nb::arg("tokens"), nb::arg("owners"),
          nb::arg("modality") = "image",
          nb::sig("def store_rows(self, keys: collections.abc.Sequence[Key | str], addresses: "
                  "collections.abc.Sequence[int], tokens: collections.abc.Sequence[int], owners: "
                  "collections.abc.Sequence[object], modality: str = 'image') -> Copies"),
          "store_to_pool, for rows at addresses in host memory that the caller has checked: "
          "contiguous, of the cache's width and\ndtype. The owners are kept until the copies are "
          "done.")
      .def(
          "load_rows",
          [](Cache& cache, nb::object key, uintptr_t address, uint64_t rows, uint64_t hidden,
             nb::object owner) -> std::optional<Copies> {
            CopyHandle handle =
                cache.LoadRows(std::move(key), address, rows, hidden, std::move(owner));
            if (!handle) return std::nullopt;
            return Copies{std::move(handle)};
          },
          nb::arg("key"), nb::arg("address"), nb::arg("rows"), nb::arg("hidden"), nb::arg("owner"),
          nb::sig(
              "def load_rows(self, key: Key | str, address: int, rows: int, hidden: int, owner: "
              "object) -> Copies | None"),
          "load, to an address in host memory with room for ``[rows, hidden]`` that the caller has "
          "checked as for store_rows.")
      .def("stats", &Cache::Stats, nb::sig("def stats(self) -> dict[str, object]"),
           "Pools (pages, entries, bytes), lanes to the store, the store's state, and the requests "
           "of "
           "prefetch_until_used\nthat run or hold something.")
      .def("regions", &Cache::Regions, nb::sig("def regions(self) -> list[tuple[int, int]]"),
           "Address and bytes of each pool's memory.")
      .def_prop_ro("closed", &Cache::closed, "Whether it was closed.")
      .def_prop_ro(
          "namespace_digest",
          [](const Cache& cache) {
            const auto& bytes = cache.namespace_digest().bytes;
            return nb::bytes(bytes.data(), bytes.size());
          },
          "32 bytes.")
      .def("close", &Cache::Close, nb::arg("timeout_s") = 5.0,
           "Stops taking work, and waits for publications and fetches under way, then cancels "
           "what is left. Views stay good.\nDeadlineExceededError when a store call had not "
           "returned; it is left behind. Idempotent.")
      .def(
          "__enter__", [](nb::handle self) { return self; },
          nb::sig("def __enter__(self) -> Cache"))
      .def(
          "__exit__", [](Cache& cache, nb::args) { cache.Close(5.0); },
          nb::sig("def __exit__(self, *exc: object) -> None"));
}

}  // namespace embercache::python
