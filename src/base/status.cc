#include "embercache/status.h"

#include <cerrno>
#include <cstring>

namespace embercache {

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "OK";
    case StatusCode::kInvalid:
      return "INVALID";
    case StatusCode::kNotFound:
      return "NOT_FOUND";
    case StatusCode::kAlreadyExists:
      return "ALREADY_EXISTS";
    case StatusCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case StatusCode::kUnavailable:
      return "UNAVAILABLE";
    case StatusCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case StatusCode::kCancelled:
      return "CANCELLED";
    case StatusCode::kCorruption:
      return "CORRUPTION";
    case StatusCode::kUnimplemented:
      return "UNIMPLEMENTED";
    case StatusCode::kInternal:
      return "INTERNAL";
  }
  return "UNKNOWN";
}

Status::Status(StatusCode code, std::string message, bool retryable)
    : rep_(std::make_unique<Rep>(Rep{code, retryable, std::move(message)})) {
  assert(code != StatusCode::kOk);
}

Status::Status(const Status& other)
    : rep_(other.rep_ ? std::make_unique<Rep>(*other.rep_) : nullptr) {}

Status& Status::operator=(const Status& other) {
  if (this != &other) rep_ = other.rep_ ? std::make_unique<Rep>(*other.rep_) : nullptr;
  return *this;
}

const std::string& Status::message() const {
  static const std::string* const kEmpty = new std::string();
  return rep_ ? rep_->message : *kEmpty;
}

std::string Status::ToString() const {
  std::string text(StatusCodeName(code()));
  if (rep_) text.append(": ").append(rep_->message);
  return text;
}

Status Status::FromErrno(int error, std::string_view what) {
  char buffer[128];
  // The GNU strerror_r, which may return a static string instead of filling the buffer.
  std::string message = std::string(what) + ": " + strerror_r(error, buffer, sizeof buffer);
  switch (error) {
    case ENOENT:
      return NotFound(std::move(message));
    case EEXIST:
      return AlreadyExists(std::move(message));
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return ResourceExhausted(std::move(message));
    case EINVAL:
    case ENAMETOOLONG:
      return Invalid(std::move(message));
    case ETIMEDOUT:
      return DeadlineExceeded(std::move(message));
    default:
      return Unavailable(std::move(message));
  }
}

}  // namespace embercache
