#include "src/cli/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace embercache {

ProgressLine::ProgressLine() : on_terminal_(isatty(STDERR_FILENO) != 0) {}

void ProgressLine::Show(std::string_view stage, uint64_t done, uint64_t total) {
  if (!on_terminal_) return;
  if (total > 0 && done >= total) return Clear();
  const std::string line =
      total == 0 ? std::string(stage) : fmt::format("{} {} %", stage, 100 * done / total);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (line == shown_) return;
  shown_ = line;
  // The cursor goes back, so that a log line starts where it should.
  fmt::print(stderr, "\r\x1b[K{}\r", line);
  std::fflush(stderr);
}

void ProgressLine::Clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (shown_.empty()) return;
  shown_.clear();
  fmt::print(stderr, "\x1b[K");
  std::fflush(stderr);
}

}  // namespace embercache
