#pragma once

#include <spdlog/sinks/ostream_sink.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "src/base/log.h"

namespace embercache {

// Takes the process's log for its lifetime. Not for tests whose own threads are logging when it
// begins or ends.
class LogCapture {
 public:
  LogCapture() : before_(Log().sinks()) {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(stream_, /*force_flush=*/true);
    sink->set_pattern("%v");
    Log().sinks() = {sink};
  }
  ~LogCapture() { Log().sinks() = before_; }
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  // The lines so far that hold `part`; takes all lines away.
  std::vector<std::string> Take(const std::string& part) {
    std::vector<std::string> lines;
    std::istringstream text(stream_.str());
    stream_.str("");
    for (std::string line; std::getline(text, line);) {
      if (line.find(part) != std::string::npos) lines.push_back(line);
    }
    return lines;
  }

 private:
  const std::vector<spdlog::sink_ptr> before_;
  std::ostringstream stream_;
};

}  // namespace embercache
