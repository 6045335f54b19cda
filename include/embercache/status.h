#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <cassert>

namespace embercache {

// What kind of thing went wrong. A miss is not an error and has no code.
enum class StatusCode : uint8_t {
  kOk = 0,
  kInvalid,            // the caller's input is wrong; the message says what would be right
  kNotFound,           // something that was named does not exist
  kAlreadyExists,      // something that was to be made exists already
  kResourceExhausted,  // no memory, pages, queue space or disk now
  kUnavailable,        // a peer or a store does not answer now
  kDeadlineExceeded,   // the time given ran out; the outcome may be unknown
  kCancelled,          // the caller or a shutdown gave up
  kCorruption,         // bytes are not what was written
  kUnimplemented,      // this build or backend cannot do it
  kInternal,           // a fault of ours
};

// "OK", "INVALID", "NOT_FOUND", … as they appear in logs and in the JSON field error.code.
std::string_view StatusCodeName(StatusCode code);

// The outcome of an operation: a code, a message for the person who reads it, and whether the same
// call may succeed later. One pointer wide; OK allocates nothing. A moved-from Status is OK.
// Not synchronised: as any value type.
class [[nodiscard]] Status {
 public:
  Status() = default;
  // REQUIRES: code != kOk.
  Status(StatusCode code, std::string message, bool retryable = false);
  Status(const Status& other);
  Status& operator=(const Status& other);
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;
  ~Status() = default;

  static Status Ok() { return Status(); }
  static Status Invalid(std::string message) { return {StatusCode::kInvalid, std::move(message)}; }
  static Status NotFound(std::string message) {
    return {StatusCode::kNotFound, std::move(message)};
  }
  static Status AlreadyExists(std::string message) {
    return {StatusCode::kAlreadyExists, std::move(message)};
  }
  static Status ResourceExhausted(std::string message) {
    return {StatusCode::kResourceExhausted, std::move(message), true};
  }
  static Status Unavailable(std::string message) {
    return {StatusCode::kUnavailable, std::move(message), true};
  }
  static Status DeadlineExceeded(std::string message) {
    return {StatusCode::kDeadlineExceeded, std::move(message), true};
  }
  static Status Cancelled(std::string message) {
    return {StatusCode::kCancelled, std::move(message)};
  }
  static Status Corruption(std::string message) {
    return {StatusCode::kCorruption, std::move(message)};
  }
  static Status Unimplemented(std::string message) {
    return {StatusCode::kUnimplemented, std::move(message)};
  }
  static Status Internal(std::string message) {
    return {StatusCode::kInternal, std::move(message)};
  }
  // The one place where errno becomes a Status: "<what>: <strerror>", with the code that fits.
  static Status FromErrno(int error, std::string_view what);

  bool ok() const { return rep_ == nullptr; }
  StatusCode code() const { return rep_ ? rep_->code : StatusCode::kOk; }
  bool retryable() const { return rep_ && rep_->retryable; }
  // Empty when ok.
  const std::string& message() const;
  // "INVALID: message", or "OK".
  std::string ToString() const;

 private:
  struct Rep {
    StatusCode code;
    bool retryable;
    std::string message;
  };
  std::unique_ptr<Rep> rep_;
};

// A T, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  // REQUIRES: !status.ok().
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    assert(!status_.ok());
  }

  bool ok() const { return value_.has_value(); }
  // OK when there is a value.
  const Status& status() const { return status_; }

  // REQUIRES for all below: ok().
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace embercache

// Returns from the calling function when `expr`, a Status, is not ok.
#define EMBERCACHE_RETURN_IF_ERROR(expr)                     \
  do {                                                       \
    ::embercache::Status embercache_status_ = (expr);        \
    if (!embercache_status_.ok()) return embercache_status_; \
  } while (false)

// Evaluates `expr`, a Result<T>; assigns its value to `lhs`, or returns its status.
#define EMBERCACHE_ASSIGN_OR_RETURN(lhs, expr) \
  EMBERCACHE_ASSIGN_OR_RETURN_IMPL_(EMBERCACHE_CONCAT_(embercache_result_, __LINE__), lhs, expr)
#define EMBERCACHE_ASSIGN_OR_RETURN_IMPL_(result, lhs, expr) \
  auto result = (expr);                                      \
  if (!result.ok()) return result.status();                  \
  lhs = std::move(result).value()
#define EMBERCACHE_CONCAT_(a, b) EMBERCACHE_CONCAT_IMPL_(a, b)
#define EMBERCACHE_CONCAT_IMPL_(a, b) a##b
