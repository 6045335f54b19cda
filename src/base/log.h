#pragma once

// The process's log: one line a record on stderr, flushed at once. Use LOG_INFO("x {}", value).

#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "embercache/clock.h"
#include "embercache/status.h"

namespace embercache {

// Sets level ("debug", "info", "warning", "error") for the process. Invalid names the choices.
Status SetLogLevel(std::string_view level);

// "text" (the default), or "json": an object a line with time, level and message. Invalid names the
// choices.
Status SetLogFormat(std::string_view format);

// What was set last.
std::string LogLevel();
std::string LogFormat();

// The logger that all of EmberCache writes to. Thread-safe.
spdlog::logger& Log();

// Hears every warning and error of the process while it lives, whatever the level that was set.
// Thread-safe.
class LogTap {
 public:
  // `place` is the line of the source that logs, "…/src/io/transfer_lane.cc:203", which tells one
  // kind of trouble from another. Runs on the thread that logs, and must not log.
  using Hear = std::function<void(std::string_view place, std::string_view message)>;
  explicit LogTap(Hear hear);
  ~LogTap();
  LogTap(const LogTap&) = delete;
  LogTap& operator=(const LogTap&) = delete;

 private:
  const Hear hear_;
};

// Lets one record through each `interval`, and tells how many it stands for. Thread-safe.
class LogLimiter {
 public:
  explicit LogLimiter(Duration interval = std::chrono::seconds(10)) : interval_(interval) {}
  // The number of records since the last one let through, this one included; 0: keep silent.
  uint64_t Admit(TimePoint now);

 private:
  const Duration interval_;
  std::atomic<int64_t> next_ns_{INT64_MIN};
  std::atomic<uint64_t> pending_{0};
};

}  // namespace embercache

#define EMBERCACHE_LOG(level, ...) \
  ::embercache::Log().log(::spdlog::source_loc{__FILE__, __LINE__, ""}, (level), __VA_ARGS__)
#define LOG_DEBUG(...) EMBERCACHE_LOG(::spdlog::level::debug, __VA_ARGS__)
#define LOG_INFO(...) EMBERCACHE_LOG(::spdlog::level::info, __VA_ARGS__)
#define LOG_WARNING(...) EMBERCACHE_LOG(::spdlog::level::warn, __VA_ARGS__)
#define LOG_ERROR(...) EMBERCACHE_LOG(::spdlog::level::err, __VA_ARGS__)
