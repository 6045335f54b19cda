#include "python/src/support.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

namespace embercache::python {
namespace {

constexpr std::array kDTypes = {DType::kU8,  DType::kI8,   DType::kI16, DType::kI32, DType::kI64,
                                DType::kF16, DType::kBF16, DType::kF32, DType::kF64};
// About 31 years, which the sum with a time since boot stays below int64 nanoseconds with.
constexpr double kForeverSeconds = 1e9;

std::atomic<uint64_t> fork_generation{0};
std::atomic<bool> interpreter_is_up{true};
std::atomic<std::thread::id> ends_interpreter;
// Threads that found the interpreter up and are about to have the GIL.
std::atomic<int> entering{0};

uint64_t ForkGeneration() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] {
    fork_generation.fetch_add(1);
    entering = 0;
  });
  (void)registered;
  return fork_generation.load();
}

// True: the GIL may be asked for, and EndEntering has to be called once it is there.
bool BeginEntering() {
  entering.fetch_add(1);
  if (interpreter_is_up.load()) return true;
  entering.fetch_sub(1);
  return false;
}

void EndEntering() {
  entering.fetch_sub(1);
}

const char* ErrorClass(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalid:
      return "InvalidError";
    case StatusCode::kNotFound:
      return "NotFoundError";
    case StatusCode::kAlreadyExists:
      return "AlreadyExistsError";
    case StatusCode::kResourceExhausted:
      return "ResourceExhaustedError";
    case StatusCode::kUnavailable:
      return "UnavailableError";
    case StatusCode::kDeadlineExceeded:
      return "DeadlineExceededError";
    case StatusCode::kCancelled:
      return "CancelledError";
    case StatusCode::kCorruption:
      return "CorruptionError";
    case StatusCode::kUnimplemented:
      return "UnimplementedError";
    case StatusCode::kOk:
    case StatusCode::kInternal:
      break;
  }
  return "InternalError";
}

[[noreturn]] void RaiseClass(const char* name, const std::string& message, bool retryable) {
  const nb::object cls = nb::module_::import_("embercache.errors").attr(name);
  const nb::object error = cls(message, retryable);
  PyErr_SetObject(cls.ptr(), error.ptr());
  throw nb::python_error();
}

}  // namespace

void Raise(const Status& status) {
  RaiseClass(ErrorClass(status.code()), status.message(), status.retryable());
}

void RaiseIfError(const Status& status) {
  if (!status.ok()) Raise(status);
}

std::string_view TextOf(nb::handle text) {
  Py_ssize_t size = 0;
  const char* const data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (data == nullptr) throw nb::python_error();
  return {data, static_cast<size_t>(size)};
}

Result<DType> ParseDType(const std::string& name) {
  std::string known;
  for (const DType dtype : kDTypes) {
    if (DTypeName(dtype) == name) return dtype;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", DTypeName(dtype));
  }
  return Status::Invalid(fmt::format("dtype '{}' is none of {}", name, known));
}

Result<Modality> ParseModality(const std::string& name) {
  for (const Modality modality : {Modality::kImage, Modality::kVideo, Modality::kAudio}) {
    if (ModalityName(modality) == name) return modality;
  }
  return Status::Invalid(fmt::format("modality '{}' is none of image, video, audio", name));
}

Duration DurationOf(double seconds) {
  const double bounded =
      std::isnan(seconds) ? 0 : std::fmin(std::fmax(seconds, 0), kForeverSeconds);
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(bounded));
}

TimePoint DeadlineIn(double seconds) {
  return SteadyClock().Now() + DurationOf(seconds);
}

ForkGuard::ForkGuard() : generation_(ForkGeneration()) {}

bool ForkGuard::forked() const {
  return generation_ != fork_generation.load();
}

void ForkGuard::Check(const char* what) const {
  if (!forked()) return;
  RaiseClass("ForkError",
             fmt::format("this {} was made before the process forked, and a forked child has none "
                         "of its threads; make another in the child, or start children with the "
                         "method 'spawn'",
                         what),
             false);
}

void SetInterpreterDown() {
  ends_interpreter = std::this_thread::get_id();
  interpreter_is_up = false;
  const TimePoint deadline = DeadlineIn(1);
  while (entering.load() > 0 && SteadyClock().Now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

NoGil::~NoGil() {
  const bool counted = BeginEntering();
  while (!counted && ends_interpreter.load() != std::this_thread::get_id()) pause();
  PyEval_RestoreThread(state_);
  if (counted) EndEntering();
}

Gil::Gil() : held_(BeginEntering()) {
  if (!held_) return;
  state_ = PyGILState_Ensure();
  EndEntering();
}

Gil::~Gil() {
  if (held_) PyGILState_Release(state_);
}

std::shared_ptr<const void> HoldPython(nb::object object) {
  return {object.release().ptr(), [](PyObject* held) {
            if (const Gil gil; gil) Py_XDECREF(held);
          }};
}

}  // namespace embercache::python
