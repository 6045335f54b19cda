#include "src/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

namespace embercache {

spdlog::logger& Log() {
  static spdlog::logger* const kLogger = [] {
    auto* logger =
        new spdlog::logger("embercache", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
    logger->flush_on(spdlog::level::trace);
    return logger;
  }();
  return *kLogger;
}

Status SetLogLevel(std::string_view level) {
  if (level == "debug") {
    Log().set_level(spdlog::level::debug);
  } else if (level == "info") {
    Log().set_level(spdlog::level::info);
  } else if (level == "warning") {
    Log().set_level(spdlog::level::warn);
  } else if (level == "error") {
    Log().set_level(spdlog::level::err);
  } else {
    return Status::Invalid("log level '" + std::string(level) +
                           "' is not one of debug, info, warning, error");
  }
  return Status::Ok();
}

uint64_t LogLimiter::Admit(TimePoint now) {
  pending_.fetch_add(1, std::memory_order_relaxed);
  const int64_t now_ns = now.time_since_epoch().count();
  int64_t next = next_ns_.load(std::memory_order_relaxed);
  if (now_ns < next) return 0;
  if (!next_ns_.compare_exchange_strong(next, now_ns + interval_.count())) return 0;
  return pending_.exchange(0, std::memory_order_relaxed);
}

}  // namespace embercache
