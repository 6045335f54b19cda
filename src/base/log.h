#pragma once

// The process's log: one line a record on stderr, flushed at once. Use LOG_INFO("x {}", value).

#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdint>
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

// The logger that all of EmberCache writes to. Thread-safe.
spdlog::logger& Log();

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

#define LOG_DEBUG(...) ::embercache::Log().debug(__VA_ARGS__)
#define LOG_INFO(...) ::embercache::Log().info(__VA_ARGS__)
#define LOG_WARNING(...) ::embercache::Log().warn(__VA_ARGS__)
#define LOG_ERROR(...) ::embercache::Log().error(__VA_ARGS__)
