#include "src/server/request_headers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <random>

namespace embercache {
namespace {

constexpr size_t kMaxRequestIdBytes = 128;
constexpr Duration kLeastSendTime = std::chrono::seconds(1);

}  // namespace

Status CheckRequestId(std::string_view what, const std::string& id) {
  const bool fine = id.size() <= kMaxRequestIdBytes &&
                    std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c < 0x7f; });
  return fine ? Status::Ok()
              : Status::Invalid(
                    fmt::format("{} has to be at most {} printable ASCII characters without blanks",
                                what, kMaxRequestIdBytes));
}

Status ReadRequestId(const HttpRequest& request, std::string* id) {
  *id = request.Header("X-Request-Id");
  const Status fine = CheckRequestId("header X-Request-Id", *id);
  if (id->empty() || !fine.ok()) {
    thread_local std::mt19937_64 random{std::random_device{}()};
    *id = fmt::format("{:016x}", random());
  }
  return fine;
}

Result<TimePoint> DeadlineOf(const HttpRequest& request, Duration limit) {
  const std::string_view timeout = request.Header("X-Request-Timeout-Ms");
  if (timeout.empty()) return request.received + limit;
  int64_t milliseconds = 0;
  const char* const behind = timeout.data() + timeout.size();
  const auto [end, error] = std::from_chars(timeout.data(), behind, milliseconds);
  const bool huge = error == std::errc::result_out_of_range && timeout.front() != '-';
  if (huge) milliseconds = std::numeric_limits<int64_t>::max();
  if ((error != std::errc() && !huge) || end != behind || milliseconds <= 0) {
    return Status::Invalid(fmt::format(
        "header X-Request-Timeout-Ms is '{}'; it has to be a positive number", timeout));
  }
  const auto most = std::chrono::duration_cast<std::chrono::milliseconds>(limit).count();
  return request.received + std::chrono::milliseconds(std::min<int64_t>(milliseconds, most));
}

TimePoint SendDeadline(TimePoint request_deadline) {
  return std::max(request_deadline, SteadyClock().Now() + kLeastSendTime);
}

}  // namespace embercache
