#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <string>
#include <vector>

#include "embercache/embedding.h"
#include "python/src/support.h"

namespace embercache::python {

// One embedding as Python sees it: [tokens, hidden], read-only, in one or more runs of rows. Holds
// the memory, which is a pin's or an array's, until released; so does each array made from it.
class EmbeddingView {
 public:
  EmbeddingView(Pin pin, const char* source);
  // Of memory that got no room in the cache; `owner` keeps it.
  EmbeddingView(EmbeddingInfo info, ConstBuffer rows, std::shared_ptr<const void> owner,
                const char* source);

  const EmbeddingInfo& info() const { return info_; }
  const char* source() const { return source_; }
  bool cached() const { return cached_; }
  bool released() const { return owner_ == nullptr; }
  size_t num_runs() const { return runs_.size(); }

  // Arrays over the memory; they hold it by themselves.
  nb::list Runs() const;
  nb::object NumPy(nb::object copy) const;
  nb::object Array(nb::object dtype, nb::object copy) const;
  // One for each run, as frameworks take them by DLPack.
  nb::list DlpackRuns() const;
  nb::list DlpackCapsules() const;
  nb::object Dlpack(nb::kwargs arguments) const;
  void CopyTo(nb::ndarray<nb::c_contig, nb::device::cpu> destination, uint64_t row_offset) const;
  void Release() { owner_.reset(); }
  std::string Describe() const;

 private:
  // Raises what is wrong: released, or in a forked child.
  void Check() const;
  uint64_t RowsOf(size_t run) const { return runs_[run].size() / info_.spec.row_bytes(); }
  nb::object RunArray(size_t run) const;
  template <typename Array>
  nb::object DlpackRun(size_t run) const;

  const ForkGuard fork_;
  EmbeddingInfo info_;
  std::vector<ConstBuffer> runs_;
  std::shared_ptr<const void> owner_;
  const char* source_;
  bool cached_ = false;
};

// What arrays of a dtype look like to NumPy (BF16, which it lacks, as uint16) and to DLPack.
nb::dlpack::dtype NumpyDType(DType dtype);
nb::dlpack::dtype DlpackDType(DType dtype);

// An array from Python as rows for the cache: [tokens, hidden] or more dimensions that end in
// hidden, in the cache's dtype. Invalid names what differs.
using InputArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
struct InputRows {
  ConstBuffer rows;
  uint64_t tokens = 0;
};
Result<InputRows> RowsOf(const InputArray& array, const EmbeddingSpec& spec);

void BindEmbeddingView(nb::module_& module);

}  // namespace embercache::python
