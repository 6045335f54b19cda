#pragma once

#include <deque>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "embercache/clock.h"
#include "embercache/status.h"

namespace embercache {

// The sum of the series `name` that have all of `labels`, in a text of Prometheus' format.
double SumOf(std::string_view metrics, std::string_view name,
             const std::vector<std::pair<std::string, std::string>>& labels = {});

// What `embercache top` shows: the same as the server's status page, from the same two answers.
class TopScreen {
 public:
  // Takes what /v1/stats and /metrics say now. Unavailable when that is not understood.
  Status Add(TimePoint now, const std::string& stats, std::string metrics);

  // The lines to show, each at most `width` characters, without control characters.
  std::vector<std::string> Lines(size_t width) const;

 private:
  struct Point {
    TimePoint at;
    double items = 0;
    double hits = 0;
  };

  void AddTraffic(std::vector<std::string>* lines) const;
  void AddPools(std::vector<std::string>* lines) const;
  void AddStore(std::vector<std::string>* lines) const;
  void AddRest(std::vector<std::string>* lines) const;
  std::string Chart(size_t width) const;

  nlohmann::json stats_;
  std::string metrics_;
  std::deque<Point> points_;
};

}  // namespace embercache
