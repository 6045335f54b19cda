// Operations that move no bytes.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "src/base/log.h"
#include "src/store/mooncake/codes.h"
#include "src/store/mooncake/session.h"

namespace embercache::mooncake {
namespace {

// A read leases its object for 10 s, as masters are set up by default.
constexpr Duration kLeaseWait = std::chrono::seconds(15);
constexpr Duration kFirstPause = std::chrono::milliseconds(10);
constexpr Duration kLongestPause = std::chrono::milliseconds(250);

// Asks for all keys, some at a time. `take(i, code or why there is none)` gets the answers.
template <typename Take>
void AskAll(const Session& session, Bridge& bridge, Op op, std::span<const std::string_view> keys,
            Take take) {
  for (size_t start = 0; start < keys.size(); start += kMaxRequestKeys) {
    const auto part = keys.subspan(start, std::min(kMaxRequestKeys, keys.size() - start));
    std::vector<Request> requests;
    for (const std::string_view key : part) requests.push_back({key, {}});
    const Status status = session.Check();
    const auto codes = status.ok() ? bridge.Ask(op, requests, session.context.deadline)
                                   : Result<std::vector<int64_t>>(status);
    for (size_t i = 0; i < part.size(); ++i) {
      take(start + i, codes.ok() ? Result<int64_t>((*codes)[i]) : Result<int64_t>(codes.status()));
    }
  }
}

// Sleeps, unless the call is over before.
Status Pause(const Session& session, Duration pause) {
  std::this_thread::sleep_for(
      std::min<Duration>(pause, session.context.deadline - SteadyClock().Now()));
  return session.Check();
}

}  // namespace

void StatObjects(const Session& session, Op op, std::span<const std::string_view> keys,
                 std::span<const size_t> open, std::vector<StatResult>& results) {
  const auto current = session.supervisor.Current();
  if (!current.ok()) {
    for (const size_t i : open) results[i].status = current.status();
    return;
  }
  std::vector<std::string_view> asked;
  for (const size_t i : open) asked.push_back(keys[i]);
  AskAll(session, **current, op, asked, [&](size_t i, const Result<int64_t>& code) {
    StatResult& result = results[open[i]];
    result.status = code.status();
    if (!code.ok() || IsAbsent(*code)) return;
    if (*code < 0) {
      result.status = Status::Unavailable("stat answers " + DescribeCode(*code));
    } else if (op == Op::kSize) {
      result.found = true;
      result.bytes = static_cast<uint64_t>(*code);
    } else {
      result.found = *code == 1;
    }
  });
}

std::vector<RemoveResult> RemoveKeys(const Session& session, Bridge& bridge,
                                     std::span<const std::string_view> keys) {
  std::vector<RemoveResult> results(keys.size());
  std::vector<size_t> left(keys.size());
  for (size_t i = 0; i < left.size(); ++i) left[i] = i;
  const TimePoint give_up = SteadyClock().Now() + kLeaseWait;
  for (Duration pause = kFirstPause;; pause = std::min(pause * 2, kLongestPause)) {
    std::vector<std::string_view> asked;
    for (const size_t i : left) asked.push_back(keys[i]);
    std::vector<size_t> leased;
    AskAll(session, bridge, Op::kRemove, asked, [&](size_t i, const Result<int64_t>& code) {
      RemoveResult& result = results[left[i]];
      result.status = code.status();
      if (!code.ok()) return;
      if (*code == 0 || *code == kNotFound) {
        result.outcome = *code == 0 ? RemoveOutcome::kRemoved : RemoveOutcome::kAbsent;
        return;
      }
      result.status = Status::Unavailable("remove answers " + DescribeCode(*code));
      if (*code == kLeased || *code == kBusy || *code == kNotReady) leased.push_back(left[i]);
    });
    left = std::move(leased);
    if (left.empty() || SteadyClock().Now() + pause >= give_up) return results;
    const Status status = Pause(session, pause);
    if (status.ok()) continue;
    for (const size_t i : left) results[i].status = status;
    return results;
  }
}

void RemoveObjects(const Session& session, std::span<const RemoveItem> items,
                   std::span<const size_t> open, std::vector<RemoveResult>& results) {
  const auto current = session.supervisor.Current();
  std::vector<std::string_view> keys;
  std::vector<size_t> indices;
  for (const size_t i : open) {
    if (items[i].version) {
      results[i].status = Status::Unimplemented("Mooncake's objects have no versions");
    } else if (!current.ok()) {
      results[i].status = current.status();
    } else {
      keys.push_back(items[i].key);
      indices.push_back(i);
    }
  }
  if (keys.empty()) return;
  const auto removed = RemoveKeys(session, **current, keys);
  for (size_t i = 0; i < indices.size(); ++i) results[indices[i]] = removed[i];
}

Status FailedTransfer(const Session& session, std::string_view operation, int64_t code,
                      uint64_t bytes, int64_t* fatal_code) {
  const std::string text = fmt::format("{} answers {}", operation, DescribeCode(code));
  if (code != kInvalidParameters) {
    *fatal_code = code;
    return Status::Unavailable(text);
  }
  static LogLimiter limiter;
  if (const uint64_t count = limiter.Admit(session.clock.Now()); count > 0) {
    LOG_ERROR("mooncake: {} for {} bytes ({} times)", text, bytes, count);
  }
  return Status::Internal(fmt::format("{} for {} bytes", text, bytes));
}

void EndAfter(Bridge& bridge, std::string_view operation, int64_t code) {
  bridge.Retire(fmt::format("{} answers {}", operation, DescribeCode(code)));
  bridge.WaitUntilReaped();
}

}  // namespace embercache::mooncake
