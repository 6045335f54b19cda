#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstring>

#include "embercache/key.h"
#include "python/src/cache.h"
#include "python/src/embedding_view.h"
#include "python/src/support.h"
#include "src/base/log.h"
#include "src/memory/memory_limit.h"
#include "src/memory/page_pool.h"

// The extension module embercache._core.

namespace embercache::python {
namespace {

nb::bytes ToBytes(const Digest256& digest) {
  return nb::bytes(digest.bytes.data(), digest.bytes.size());
}

nb::bytes MakeNamespaceDigest(const std::string& model_id, const std::string& weights_sha256,
                              const std::string& preprocess_fingerprint, const std::string& dtype,
                              uint32_t tensor_parallel_size, const std::string& tenant,
                              uint64_t epoch) {
  NamespaceFields fields;
  fields.model_id = model_id;
  if (!weights_sha256.empty()) {
    const auto digest = Digest256::FromHex(weights_sha256);
    if (!digest) {
      Raise(Status::Invalid(
          fmt::format("weights_sha256 '{}' is not 64 hexadecimal digits", weights_sha256)));
    }
    fields.weights_digest = *digest;
  }
  fields.preprocess_fingerprint = preprocess_fingerprint;
  fields.dtype = ValueOrRaise(ParseDType(dtype));
  fields.tensor_parallel_size = tensor_parallel_size;
  fields.tenant_salt = tenant;
  fields.epoch = epoch;
  return ToBytes(NamespaceDigest(fields));
}

EmbeddingKey KeyFromHex(const std::string& hex) {
  const auto digest = Digest256::FromHex(hex);
  if (!digest) Raise(Status::Invalid(fmt::format("key '{}' is not 64 hexadecimal digits", hex)));
  return {*digest};
}

void BindKey(nb::module_& module) {
  nb::class_<EmbeddingKey>(module, "Key",
                           "The identity of an embedding: 256 bits. Made by a cache, or from its "
                           "64 hexadecimal digits.")
      .def(
          "__init__",
          [](EmbeddingKey* self, const std::string& hex) {
            new (self) EmbeddingKey(KeyFromHex(hex));
          },
          nb::arg("hex"))
      .def_prop_ro(
          "hex", [](const EmbeddingKey& key) { return key.digest.ToHex(); },
          "64 lower-case hexadecimal digits.")
      .def_prop_ro("text", &EmbeddingKey::Text, "What stores use: ``emb_<hex>``.")
      .def("__bytes__", [](const EmbeddingKey& key) { return ToBytes(key.digest); })
      .def(
          "__eq__",
          [](const EmbeddingKey& key, nb::handle other) {
            return nb::isinstance<EmbeddingKey>(other) &&
                   key == nb::cast<const EmbeddingKey&>(other);
          },
          nb::arg("other").none(), nb::sig("def __eq__(self, other: object) -> bool"))
      .def("__hash__", [](const EmbeddingKey& key) { return EmbeddingKeyHash()(key) >> 1; })
      .def("__repr__",
           [](const EmbeddingKey& key) { return fmt::format("Key('{}')", key.digest.ToHex()); });
}

}  // namespace
}  // namespace embercache::python

NB_MODULE(_core, module) {
  using namespace embercache;          // NOLINT(google-build-using-namespace)
  using namespace embercache::python;  // NOLINT(google-build-using-namespace)
  // Threads that the interpreter's end cuts off keep what they hold, which is no fault of theirs.
  nb::set_leak_warnings(false);
  module.doc() = "The C++ core of EmberCache. Use the package embercache.";
  BindKey(module);
  BindEmbeddingView(module);
  BindStores(module);
  BindCache(module);
  module.def("namespace_digest", &MakeNamespaceDigest, nb::arg("model_id"),
             nb::arg("weights_sha256") = "", nb::arg("preprocess_fingerprint") = "",
             nb::arg("dtype") = "F32", nb::arg("tensor_parallel_size") = 1, nb::arg("tenant") = "",
             nb::arg("epoch") = 0,
             "32 bytes that differ wherever two models' embeddings of the same media do "
             "(docs/formats.md).");
  module.def("page_bytes_for", &PageBytesFor, nb::arg("row_bytes"),
             "Bytes of a page of a pool with such rows.");
  module.def("default_pool_bytes", &DefaultPoolBytes,
             "The smaller of 4 GB and a quarter of the memory that this process may use.");
  module.def(
      "set_log_level", [](const std::string& level) { RaiseIfError(SetLogLevel(level)); },
      nb::arg("level"),
      "``debug``, ``info``, ``warning`` or ``error``: what the core writes to "
      "stderr, for the process.");
  module.def("set_leak_warnings", &nb::set_leak_warnings, nb::arg("on"),
             "Whether objects that outlive the interpreter are named on stderr; for tests.");
  module.def(
      "shut_down",
      [](double timeout_s) {
        const NoGil no_gil;
        CloseAllCaches(DeadlineIn(timeout_s));
        SetInterpreterDown();
      },
      nb::arg("timeout_s"),
      "At the interpreter's end: closes all caches, and keeps their threads from Python then.");
}
