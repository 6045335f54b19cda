#include "src/base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>

namespace embercache {
namespace {

constexpr char kTextPattern[] = "%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v";
constexpr char kJsonPattern[] = R"({"time":"%Y-%m-%dT%H:%M:%S.%e","level":"%l","message":"%*"})";

// %*: the message as the inside of a JSON string.
class JsonMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm& /*time*/,
              spdlog::memory_buf_t& out) override {
    for (const char c : message.payload) {
      if (c == '"' || c == '\\') {
        out.push_back('\\');
        out.push_back(c);
      } else if (static_cast<unsigned char>(c) < 0x20) {
        fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
      } else {
        out.push_back(c);
      }
    }
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<JsonMessage>();
  }
};

}  // namespace

spdlog::logger& Log() {
  static spdlog::logger* const kLogger = [] {
    auto* logger =
        new spdlog::logger("embercache", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    logger->set_pattern(kTextPattern);
    logger->flush_on(spdlog::level::trace);
    return logger;
  }();
  return *kLogger;
}

Status SetLogFormat(std::string_view format) {
  if (format == "text") {
    Log().set_pattern(kTextPattern);
  } else if (format == "json") {
    auto formatter = std::make_unique<spdlog::pattern_formatter>();
    formatter->add_flag<JsonMessage>('*').set_pattern(kJsonPattern);
    Log().set_formatter(std::move(formatter));
  } else {
    return Status::Invalid("log format '" + std::string(format) + "' is not one of text, json");
  }
  return Status::Ok();
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
