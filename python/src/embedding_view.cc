#include "python/src/embedding_view.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <utility>

namespace embercache::python {
namespace {

// Keeps what a view holds for an array.
nb::capsule Keep(const std::shared_ptr<const void>& owner) {
  auto* const held = new std::shared_ptr<const void>(owner);
  return {held, [](void* pointer) noexcept {
            delete static_cast<std::shared_ptr<const void>*>(pointer);
          }};
}

uint8_t Code(nb::dlpack::dtype_code code) {
  return static_cast<uint8_t>(code);
}

std::string ShapeOf(const InputArray& array) {
  std::string text;
  for (size_t i = 0; i < array.ndim(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", array.shape(i));
  }
  return fmt::format("[{}]", text);
}

}  // namespace

nb::dlpack::dtype DlpackDType(DType dtype) {
  using enum nb::dlpack::dtype_code;
  const auto bits = static_cast<uint8_t>(DTypeSize(dtype) * 8);
  switch (dtype) {
    case DType::kU8:
      return {Code(UInt), bits, 1};
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
      return {Code(Int), bits, 1};
    case DType::kBF16:
      return {Code(Bfloat), bits, 1};
    case DType::kF16:
    case DType::kF32:
    case DType::kF64:
      break;
  }
  return {Code(Float), bits, 1};
}

nb::dlpack::dtype NumpyDType(DType dtype) {
  if (dtype != DType::kBF16) return DlpackDType(dtype);
  return {Code(nb::dlpack::dtype_code::UInt), 16, 1};
}

Result<InputRows> RowsOf(const InputArray& array, const EmbeddingSpec& spec) {
  const nb::dlpack::dtype dtype = array.dtype();
  if (dtype != DlpackDType(spec.dtype) && dtype != NumpyDType(spec.dtype)) {
    return Status::Invalid(
        fmt::format("an array of elements with DLPack code {} and {} bits, where the cache holds "
                    "{}; convert it first",
                    dtype.code, dtype.bits, DTypeName(spec.dtype)));
  }
  if (array.ndim() < 2 || array.shape(array.ndim() - 1) != spec.hidden || array.size() == 0) {
    return Status::Invalid(fmt::format("an array of shape {}; an embedding here is [tokens, {}]",
                                       ShapeOf(array), spec.hidden));
  }
  return InputRows{.rows = {reinterpret_cast<const std::byte*>(array.data()), array.nbytes()},
                   .tokens = array.size() / spec.hidden};
}

EmbeddingView::EmbeddingView(Pin pin, const char* source)
    : info_(pin.info()),
      runs_(pin.buffers().begin(), pin.buffers().end()),
      source_(source),
      cached_(pin.cached()) {
  owner_ = std::shared_ptr<Pin>(new Pin(std::move(pin)), [fork = ForkGuard()](Pin* held) {
    // In a forked child the cache's mutex may be locked for ever.
    if (!fork.forked()) delete held;
  });
}

EmbeddingView::EmbeddingView(EmbeddingInfo info, ConstBuffer rows,
                             std::shared_ptr<const void> owner, const char* source)
    : info_(std::move(info)), runs_{rows}, owner_(std::move(owner)), source_(source) {}

void EmbeddingView::Check() const {
  fork_.Check("embedding");
  if (released()) {
    Raise(Status::Invalid(fmt::format("the embedding {} was released", info_.key.Text())));
  }
}

nb::object EmbeddingView::RunArray(size_t run) const {
  const size_t shape[2] = {RowsOf(run), info_.spec.hidden};
  return nb::cast(
      nb::ndarray<nb::numpy, nb::ro>(runs_[run].data(), 2, shape, Keep(owner_), nullptr,
                                     NumpyDType(info_.spec.dtype), nb::device::cpu::value),
      nb::rv_policy::reference);
}

template <typename Array>
nb::object EmbeddingView::DlpackRun(size_t run) const {
  const size_t shape[2] = {RowsOf(run), info_.spec.hidden};
  // Not marked read-only, since most frameworks take only writable memory by DLPack.
  return nb::cast(Array(const_cast<std::byte*>(runs_[run].data()), 2, shape, Keep(owner_), nullptr,
                        DlpackDType(info_.spec.dtype), nb::device::cpu::value),
                  nb::rv_policy::reference);
}

nb::list EmbeddingView::Runs() const {
  Check();
  nb::list arrays;
  for (size_t run = 0; run < runs_.size(); ++run) arrays.append(RunArray(run));
  return arrays;
}

nb::list EmbeddingView::DlpackRuns() const {
  Check();
  nb::list arrays;
  for (size_t run = 0; run < runs_.size(); ++run) {
    arrays.append(DlpackRun<nb::ndarray<nb::array_api>>(run));
  }
  return arrays;
}

nb::list EmbeddingView::DlpackCapsules() const {
  Check();
  nb::list capsules;
  // For no framework nanobind makes the capsule itself.
  for (size_t run = 0; run < runs_.size(); ++run) capsules.append(DlpackRun<nb::ndarray<>>(run));
  return capsules;
}

nb::object EmbeddingView::NumPy(nb::object copy) const {
  Check();
  const bool may_copy = copy.is_none() || nb::cast<bool>(copy);
  const bool must_copy = !copy.is_none() && may_copy;
  if (runs_.size() == 1 && !must_copy) return RunArray(0);
  if (!may_copy) {
    Raise(Status::Invalid(fmt::format(
        "the embedding lies in {} runs, and one array of it is a copy; take runs(), or allow copy",
        runs_.size())));
  }
  return nb::module_::import_("numpy").attr("concatenate")(Runs());
}

nb::object EmbeddingView::Array(nb::object dtype, nb::object copy) const {
  nb::object array = NumPy(std::move(copy));
  if (dtype.is_none()) return array;
  return array.attr("astype")(dtype, nb::arg("copy") = false);
}

nb::object EmbeddingView::Dlpack(nb::kwargs arguments) const {
  Check();
  if (runs_.size() != 1) {
    const std::string message = fmt::format(
        "the embedding lies in {} runs, and DLPack takes one; take dlpack_runs()", runs_.size());
    PyErr_SetString(PyExc_BufferError, message.c_str());
    throw nb::python_error();
  }
  const nb::object array = DlpackRun<nb::ndarray<nb::array_api>>(0);
  return array.attr("__dlpack__")(**arguments);
}

void EmbeddingView::CopyTo(nb::ndarray<nb::c_contig, nb::device::cpu> destination,
                           uint64_t row_offset) const {
  Check();
  const nb::dlpack::dtype dtype = destination.dtype();
  const bool fits_dtype =
      dtype == DlpackDType(info_.spec.dtype) || dtype == NumpyDType(info_.spec.dtype);
  if (!fits_dtype || destination.ndim() != 2 || destination.shape(1) != info_.spec.hidden ||
      row_offset > destination.shape(0) || info_.tokens > destination.shape(0) - row_offset) {
    Raise(Status::Invalid(
        fmt::format("{} rows from row {} on do not fit the destination, which has to be a "
                    "contiguous array [at least {}, {}] of {}",
                    info_.tokens, row_offset, row_offset + info_.tokens, info_.spec.hidden,
                    DTypeName(info_.spec.dtype))));
  }
  auto* to = static_cast<std::byte*>(destination.data_handle()) + destination.byte_offset() +
             row_offset * info_.spec.row_bytes();
  // Another thread may release this view meanwhile.
  const std::shared_ptr<const void> owner = owner_;
  const std::vector<ConstBuffer> runs = runs_;
  const nb::gil_scoped_release no_gil;
  for (const ConstBuffer run : runs) {
    std::memcpy(to, run.data(), run.size());
    to += run.size();
  }
}

std::string EmbeddingView::Describe() const {
  return fmt::format("<Embedding {} [{}, {}] {} {}{}>", info_.key.Text().substr(0, 12),
                     info_.tokens, info_.spec.hidden, DTypeName(info_.spec.dtype), source_,
                     released() ? ", released" : "");
}

void BindEmbeddingView(nb::module_& module) {
  using View = EmbeddingView;
  nb::class_<View>(module, "Embedding",
                   "One embedding: a row-major matrix ``[tokens, hidden]``, read-only.\n\n"
                   "Holds the memory it lies in, without a copy, until it is released or "
                   "collected; so does each array\nmade from it, also after the cache was closed. "
                   "Where the pool had no contiguous room, it lies in several\nruns of rows.")
      .def_prop_ro(
          "key", [](const View& view) { return view.info().key; }, "Its key.")
      .def_prop_ro(
          "shape",
          [](const View& view) {
            return nb::make_tuple(view.info().tokens, view.info().spec.hidden);
          },
          nb::sig("def shape(self) -> tuple[int, int]"), "``(tokens, hidden)``.")
      .def_prop_ro(
          "dtype", [](const View& view) { return std::string(DTypeName(view.info().spec.dtype)); },
          "The name that safetensors uses: ``\"F32\"``, ``\"BF16\"``, ...")
      .def_prop_ro(
          "modality",
          [](const View& view) { return std::string(ModalityName(view.info().spec.modality)); },
          "``\"image\"``, ``\"video\"`` or ``\"audio\"``.")
      .def_prop_ro(
          "nbytes", [](const View& view) { return view.info().payload_bytes(); },
          "Bytes of all rows.")
      .def_prop_ro(
          "metadata", [](const View& view) { return view.info().metadata; },
          "A JSON object as text, or ``\"\"``.")
      .def_prop_ro(
          "source", [](const View& view) { return std::string(view.source()); },
          "``\"local\"`` (host cache), ``\"global\"`` (store), ``\"joined\"`` (another "
          "call was fetching or computing it)\nor ``\"computed\"`` (by this call).")
      .def_prop_ro("cached", &View::cached,
                   "False for an embedding that got no room: it lives as long as its views.")
      .def_prop_ro(
          "contiguous", [](const View& view) { return view.num_runs() == 1; },
          "Whether all rows lie in one run.")
      .def_prop_ro("released", &View::released, "Whether :meth:`release` was called.")
      .def("runs", &View::Runs, nb::sig("def runs(self) -> list[numpy.ndarray]"),
           "The rows as read-only arrays over the cache's memory, in order, one each run. BF16 "
           "comes as ``uint16``,\nsince NumPy has none. Raises InvalidError once released.")
      .def("numpy", &View::NumPy, nb::arg("copy") = nb::none(),
           nb::sig("def numpy(self, copy: bool | None = None) -> numpy.ndarray"),
           "One array ``[tokens, hidden]``: over the cache's memory and read-only where the rows "
           "are contiguous, else a copy.\n``copy=False`` raises InvalidError instead of copying, "
           "``copy=True`` always copies. BF16 comes as ``uint16``.")
      .def("__array__", &View::Array, nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none(),
           nb::sig("def __array__(self, dtype: object = None, copy: bool | None = None) -> "
                   "numpy.ndarray"))
      .def("dlpack_runs", &View::DlpackRuns, nb::sig("def dlpack_runs(self) -> list[object]"),
           "The runs as objects for ``from_dlpack``, BF16 as such. They share the cache's memory: "
           "read them only.")
      .def("dlpack_capsules", &View::DlpackCapsules,
           nb::sig("def dlpack_capsules(self) -> list[object]"),
           "The same as DLPack's capsules, each to be taken once.")
      .def("__dlpack__", &View::Dlpack, nb::sig("def __dlpack__(self, **kwargs: object) -> object"),
           "The whole embedding by DLPack, without a copy. BufferError where it is not contiguous.")
      .def(
          "__dlpack_device__", [](const View&) { return nb::make_tuple(1, 0); },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def(
          "copy_to", &View::CopyTo, nb::arg("destination").noconvert(), nb::arg("row_offset") = 0,
          nb::sig("def copy_to(self, destination: object, row_offset: int = 0) -> None"),
          "Copies the rows into ``destination``, a contiguous array ``[rows, hidden]`` of the same "
          "dtype in host memory,\nfrom row ``row_offset`` on, without the GIL. InvalidError where "
          "they do not fit.")
      .def("release", &View::Release,
           "Gives the hold up. Arrays made before keep theirs. May be called again.")
      .def(
          "__enter__", [](nb::handle self) { return self; },
          nb::sig("def __enter__(self) -> Embedding"))
      .def(
          "__exit__", [](View& view, nb::args) { view.Release(); },
          nb::sig("def __exit__(self, *exc: object) -> None"))
      .def("__len__", [](const View& view) { return view.info().tokens; })
      .def("__repr__", &View::Describe);
}

}  // namespace embercache::python
