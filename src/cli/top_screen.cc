#include "src/cli/top_screen.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>

#include "src/base/units.h"

namespace embercache {
namespace {

using Json = nlohmann::json;
using Lines = std::vector<std::string>;

constexpr size_t kMaxPoints = 600;
constexpr Duration kRecent = std::chrono::minutes(1);
constexpr size_t kBarWidth = 30;
constexpr std::array<std::string_view, 4> kSources = {"local", "global", "joined", "computed"};
constexpr std::array<std::string_view, 4> kSourceTexts = {"host cache", "store",
                                                          "joined another's work", "computed"};
constexpr std::array<std::string_view, 4> kPageStates = {"ready", "filling", "quarantined", "free"};

std::string Percent(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "-";
}

std::string Time(double seconds) {
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  if (seconds < 3600) return fmt::format("{:.1f} min", seconds / 60);
  if (seconds < 172800) return fmt::format("{:.1f} h", seconds / 3600);
  return fmt::format("{:.1f} days", seconds / 86400);
}

std::string Bar(double part, double whole) {
  const double share = whole > 0 ? std::clamp(part / whole, 0.0, 1.0) : 0;
  const auto filled = static_cast<size_t>(share * kBarWidth + 0.5);
  return std::string(filled, '#') + std::string(kBarWidth - filled, '.');
}

std::string ShareLine(std::string_view name, double part, double whole) {
  return fmt::format("  {:<22} {} {:>12.0f} {:>8}", name, Bar(part, whole), part,
                     Percent(part, whole));
}

// At most `width` characters of UTF-8; what would move the cursor becomes '?'.
std::string Printable(std::string_view text, size_t width) {
  std::string line;
  for (size_t i = 0, characters = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool continues = (c & 0xc0) == 0x80;
    if (!continues && ++characters > width) break;
    const bool is_c1 =
        c == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (is_c1) ++i;
    line += c < ' ' || c == 0x7f || is_c1 ? '?' : text[i];
  }
  return line;
}

std::string ClockTime(int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm local{};
  localtime_r(&seconds, &local);
  return fmt::format("{:%H:%M:%S}", local);
}

}  // namespace

double SumOf(std::string_view metrics, std::string_view name,
             const std::vector<std::pair<std::string, std::string>>& labels) {
  double sum = 0;
  while (!metrics.empty()) {
    const std::string_view line = metrics.substr(0, metrics.find('\n'));
    metrics.remove_prefix(std::min(line.size() + 1, metrics.size()));
    if (!line.starts_with(name)) continue;
    const std::string_view rest = line.substr(name.size());
    if (!rest.starts_with('{') && !rest.starts_with(' ')) continue;
    const bool has_all = std::all_of(labels.begin(), labels.end(), [&](const auto& label) {
      return rest.find(fmt::format("{}=\"{}\"", label.first, label.second)) != rest.npos;
    });
    if (has_all) sum += std::strtod(std::string(rest.substr(rest.rfind(' ') + 1)).c_str(), nullptr);
  }
  return sum;
}

Status TopScreen::Add(TimePoint now, const std::string& stats, std::string metrics) {
  stats_ = Json::parse(stats, nullptr, false);
  metrics_ = std::move(metrics);
  Point point{.at = now};
  for (const std::string_view source : kSources) {
    const double count =
        SumOf(metrics_, "embercache_items_total", {{"source", std::string(source)}});
    point.items += count;
    if (source != "computed") point.hits += count;
  }
  if (!points_.empty() && point.items < points_.back().items) points_.clear();  // it was restarted
  points_.push_back(point);
  if (points_.size() > kMaxPoints) points_.pop_front();
  try {
    (void)Lines(0);
  } catch (const Json::exception&) {
    points_.clear();
    return Status::Unavailable("what answers there is no EmberCache server of this version");
  }
  return Status::Ok();
}

std::vector<std::string> TopScreen::Lines(size_t width) const {
  std::vector<std::string> lines;
  if (points_.empty()) return lines;
  const Json& store = stats_.at("store");
  const bool ill = store.value("backend", "") != "" && store.value("state", "") != "up";
  lines.push_back(
      fmt::format("EmberCache {}   up {}   {}", stats_.value("version", ""),
                  Time(stats_.value("uptime_s", 0.0)),
                  ill ? "serving; the store is " + store.value("state", "") : "serving"));
  lines.emplace_back();
  AddTraffic(&lines);
  lines.push_back("Hit rate over time   |" + Chart(width > 30 ? width - 30 : 0) + "|");
  AddPools(&lines);
  AddStore(&lines);
  AddRest(&lines);
  for (std::string& line : lines) line = Printable(line, width);
  return lines;
}

void TopScreen::AddTraffic(std::vector<std::string>* lines) const {
  const Point& now = points_.back();
  const auto first = std::find_if(points_.begin(), points_.end(),
                                  [&](const Point& point) { return now.at - point.at <= kRecent; });
  const double seconds = std::chrono::duration<double>(now.at - first->at).count();
  const double items = now.items - first->items;
  lines->push_back(fmt::format("Hit rate             {} in the last minute, {} since the start",
                               Percent(now.hits - first->hits, items),
                               Percent(now.hits, now.items)));
  lines->push_back(
      fmt::format("Items                {} a second, {:.0f} since the start, {:.0f} failed",
                  seconds > 0 ? fmt::format("{:.1f}", items / seconds) : "-", now.items,
                  SumOf(metrics_, "embercache_item_errors_total")));
  lines->push_back(fmt::format("Encoder time saved   {}",
                               Time(SumOf(metrics_, "embercache_encoder_saved_seconds_total"))));
  lines->push_back(fmt::format("In progress          {} of at most {} items",
                               stats_.value("items_admitted", 0),
                               stats_.at("configuration").value("queue_items", 0)));
  lines->emplace_back("Where items came from");
  for (size_t i = 0; i < kSources.size(); ++i) {
    lines->push_back(
        ShareLine(kSourceTexts[i],
                  SumOf(metrics_, "embercache_items_total", {{"source", std::string(kSources[i])}}),
                  now.items));
  }
}

// The newest at the right: a character a second, from '_' (0 %) to '#' (100 %).
std::string TopScreen::Chart(size_t width) const {
  static constexpr std::string_view kLevels = "_.-:=+*%#";
  std::string chart;
  for (size_t i = points_.size() > width ? points_.size() - width : 1; i < points_.size(); ++i) {
    const double items = points_[i].items - points_[i - 1].items;
    const double hits = points_[i].hits - points_[i - 1].hits;
    const auto last = static_cast<double>(kLevels.size() - 1);
    chart += items > 0 ? kLevels[static_cast<size_t>(hits / items * last + 0.5)] : ' ';
  }
  return chart;
}

void TopScreen::AddPools(std::vector<std::string>* lines) const {
  lines->emplace_back("Host memory");
  for (const Json& pool : stats_.at("pools")) {
    const Json& pages = pool.at("pages");
    const Json& entries = pool.at("entries");
    const auto total = pages.value("total", uint64_t{0});
    lines->push_back(fmt::format(
        "  {}: {} in {} pages, {} entries, {} pinned, {} evicted", pool.value("name", ""),
        FormatBytes(total * pool.value("page_bytes", uint64_t{0})), total,
        entries.value("ready", 0), entries.value("pinned", 0), pool.value("evicted", 0)));
    for (const std::string_view state : kPageStates) {
      lines->push_back(
          ShareLine(state, pages.value(std::string(state), 0.0), static_cast<double>(total)));
    }
  }
}

void TopScreen::AddStore(std::vector<std::string>* lines) const {
  const Json& store = stats_.at("store");
  const std::string backend = store.value("backend", "");
  if (backend.empty()) {
    lines->emplace_back("Store                none: the host cache alone");
    return;
  }
  const std::string detail = store.value("detail", "");
  lines->push_back(fmt::format("Store                {} is {}{}{}", backend,
                               store.value("state", ""), detail.empty() ? "" : ": ", detail));
  for (const Json& lane : stats_.at("lanes")) {
    const bool open = lane.value("breaker_open", false);
    lines->push_back(fmt::format("  breaker, {:<12} {}", lane.value("name", ""),
                                 open ? "OPEN: answers without the store" : "closed"));
  }
  std::string published;
  for (const char* result : {"stored", "already_present", "accepted", "dropped", "failed"}) {
    std::string name = result;
    std::replace(name.begin(), name.end(), '_', ' ');
    published += fmt::format("{}{} {:.0f}", published.empty() ? "" : ", ", name,
                             SumOf(metrics_, "embercache_published_total", {{"result", result}}));
  }
  lines->push_back("  published            " + published);
  lines->push_back(fmt::format("  corrupt objects      {:.0f}",
                               SumOf(metrics_, "embercache_corruptions_total")));
}

void TopScreen::AddRest(std::vector<std::string>* lines) const {
  std::string queues;
  for (const char* queue : {"decode", "encode", "get", "put"}) {
    queues += fmt::format("{}{} {:.0f}", queues.empty() ? "" : ", ", queue,
                          SumOf(metrics_, "embercache_queue_depth", {{"queue", queue}}));
  }
  lines->push_back("Queues               " + queues);
  lines->emplace_back("Models");
  for (const Json& model : stats_.at("models")) {
    lines->push_back(fmt::format("  {:<22} {}, rows of {} {}, namespace {}",
                                 model.value("name", ""), model.value("modality", ""),
                                 model.value("hidden", 0), model.value("dtype", ""),
                                 model.value("namespace", "")));
  }
  const Json& errors = stats_.at("recent_errors");
  lines->emplace_back(errors.empty() ? "Last errors          none" : "Last errors");
  for (const Json& error : errors) {
    const std::string request = error.value("request_id", "");
    lines->push_back(fmt::format("  {} {} {}{}", ClockTime(error.value("unix_ms", int64_t{0})),
                                 error.value("code", ""), error.value("message", ""),
                                 request.empty() ? "" : " (" + request + ")"));
  }
}

}  // namespace embercache
