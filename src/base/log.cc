#include "src/base/log.h"

#include <fmt/format.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>
#include <vector>

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

constexpr std::array<std::pair<std::string_view, spdlog::level::level_enum>, 4> kLevels = {
    {{"debug", spdlog::level::debug},
     {"info", spdlog::level::info},
     {"warning", spdlog::level::warn},
     {"error", spdlog::level::err}}};

spdlog::sink_ptr StderrSink() {
  static auto& sink = *[] {
    auto stderr_sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
    stderr_sink->set_level(spdlog::level::info);
    return new spdlog::sink_ptr(std::move(stderr_sink));
  }();
  return sink;
}

// The level that was set is that of stderr; the logger itself lets through what the taps want too.
// Log() comes before the lock: making the logger takes it.
class TapSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void Add(const LogTap::Hear* hear) {
    spdlog::logger& logger = Log();
    const std::lock_guard lock(mutex_);
    taps_.push_back(hear);
    SetLevelOf(logger);
  }
  void Remove(const LogTap::Hear* hear) {
    spdlog::logger& logger = Log();
    const std::lock_guard lock(mutex_);
    std::erase(taps_, hear);
    SetLevelOf(logger);
  }
  void SetLevel(spdlog::level::level_enum level) {
    spdlog::logger& logger = Log();
    const std::lock_guard lock(mutex_);
    StderrSink()->set_level(level);
    SetLevelOf(logger);
  }

 private:
  void SetLevelOf(spdlog::logger& logger) {
    const auto level = StderrSink()->level();
    logger.set_level(taps_.empty() ? level : std::min(level, spdlog::level::warn));
  }
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (message.level < spdlog::level::warn || taps_.empty() || message.source.empty()) return;
    const std::string place = fmt::format("{}:{}", message.source.filename, message.source.line);
    const std::string_view text(message.payload.data(), message.payload.size());
    for (const LogTap::Hear* hear : taps_) (*hear)(place, text);
  }
  void flush_() override {}

  std::vector<const LogTap::Hear*> taps_;
};

const std::shared_ptr<TapSink>& Taps() {
  static auto& sink = *new std::shared_ptr<TapSink>(std::make_shared<TapSink>());
  return sink;
}

std::atomic<bool> json_format = false;

}  // namespace

LogTap::LogTap(Hear hear) : hear_(std::move(hear)) {
  Taps()->Add(&hear_);
}

LogTap::~LogTap() {
  Taps()->Remove(&hear_);
}

spdlog::logger& Log() {
  static spdlog::logger* const kLogger = [] {
    auto* logger = new spdlog::logger("embercache", {StderrSink(), Taps()});
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
  json_format = format == "json";
  return Status::Ok();
}

Status SetLogLevel(std::string_view level) {
  for (const auto& [name, value] : kLevels) {
    if (name != level) continue;
    Taps()->SetLevel(value);
    return Status::Ok();
  }
  return Status::Invalid("log level '" + std::string(level) +
                         "' is not one of debug, info, warning, error");
}

std::string LogLevel() {
  const auto level = StderrSink()->level();
  return std::string(std::find_if(kLevels.begin(), kLevels.end(), [level](const auto& known) {
                       return known.second == level;
                     })->first);
}

std::string LogFormat() {
  return json_format ? "json" : "text";
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
