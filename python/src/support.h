#pragma once

// What every binding needs: Status as Python exceptions, the way out of a forked child, and Python
// objects that threads without the GIL hold.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "embercache/clock.h"
#include "embercache/dtype.h"
#include "embercache/status.h"

namespace embercache::python {

namespace nb = nanobind;

// Raises the class of embercache.errors that stands for the status' code. The GIL is held.
[[noreturn]] void Raise(const Status& status);
void RaiseIfError(const Status& status);
template <typename T>
T ValueOrRaise(Result<T> result) {
  RaiseIfError(result.status());
  return *std::move(result);
}

// In UTF-8, of a str; good as long as that lives. Raises for what is not valid Unicode.
std::string_view TextOf(nb::handle text);

// "F32" and so on; Invalid lists the names.
Result<DType> ParseDType(const std::string& name);
// "image", "video", "audio"; Invalid lists them.
Result<Modality> ParseModality(const std::string& name);

// From now on by `seconds`; negative counts as 0, and what is too large as never.
TimePoint DeadlineIn(double seconds);
Duration DurationOf(double seconds);

// Remembers in which process it was made: a forked child has none of the threads of its parent, and
// mutexes that nobody will unlock.
class ForkGuard {
 public:
  ForkGuard();
  bool forked() const;
  // Raises ForkError, which names `what`, in a forked child.
  void Check(const char* what) const;

 private:
  const uint64_t generation_;
};

// The interpreter goes down, called by the thread that ends it, without the GIL. From now on no
// other thread of ours asks for the GIL; returns when those that had asked have it, within a
// second.
void SetInterpreterDown();

// Gives the GIL up while it lives. A thread that wants it back once the interpreter is down sleeps
// for ever instead: Python would end it by unwinding, which no destructor survives.
class NoGil {
 public:
  NoGil() : state_(PyEval_SaveThread()) {}
  ~NoGil();
  NoGil(const NoGil&) = delete;
  NoGil& operator=(const NoGil&) = delete;

 private:
  PyThreadState* const state_;
};

// The GIL for a thread of the core; false once the interpreter is down.
class Gil {
 public:
  Gil();
  ~Gil();
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;
  explicit operator bool() const { return held_; }

 private:
  const bool held_;
  PyGILState_STATE state_{};
};

// `object` for C++ threads: let go under the GIL, or, once the interpreter is down, never.
std::shared_ptr<const void> HoldPython(nb::object object);

}  // namespace embercache::python
