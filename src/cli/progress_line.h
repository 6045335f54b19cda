#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace embercache {

// One line on stderr that tells how far something is, where that is a terminal; else nothing.
// Thread-safe.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { Clear(); }

  // `total` 0: how far is not known.
  void Show(std::string_view stage, uint64_t done, uint64_t total);
  void Clear();

 private:
  const bool on_terminal_;
  std::mutex mutex_;
  std::string shown_;
};

}  // namespace embercache
