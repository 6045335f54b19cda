#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <limits>
#include <memory>
#include <thread>

#include "src/cli/commands.h"
#include "src/cli/report.h"
#include "src/cli/server_client.h"
#include "src/cli/top_screen.h"

namespace embercache {
namespace {

constexpr Duration kPeriod = std::chrono::seconds(1);
constexpr Duration kFetchTime = std::chrono::seconds(5);

struct TopVerb {
  std::string address = "http://127.0.0.1:8080";
  bool once = false;
};

struct Size {
  size_t width = std::numeric_limits<size_t>::max();
  size_t height = std::numeric_limits<size_t>::max();
};

// Of the terminal; without bounds where there is none.
Size ScreenSize() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
    return {};
  }
  return {size.ws_col, size.ws_row};
}

Status Refresh(const ServerAddress& server, TopScreen* screen) {
  EMBERCACHE_ASSIGN_OR_RETURN(const std::string stats, FetchText(server, "/v1/stats", kFetchTime));
  EMBERCACHE_ASSIGN_OR_RETURN(std::string metrics, FetchText(server, "/metrics", kFetchTime));
  return screen->Add(SteadyClock().Now(), stats, std::move(metrics));
}

// Over what was there, so that nothing flickers.
void Draw(std::vector<std::string> lines, size_t height) {
  if (lines.size() >= height) lines.resize(height - 1);
  std::string text = "\x1b[H";
  for (const std::string& line : lines) text += line + "\x1b[K\n";
  fmt::print("{}\x1b[J", text);
}

int Watch(const ServerAddress& server, bool once) {
  TopScreen screen;
  // A server that has answered may come back; one that never did has another address.
  Status status = Refresh(server, &screen);
  if (!status.ok()) return Fail(status, kExitFailed);
  const bool draws = !once && isatty(STDOUT_FILENO) != 0;
  if (draws) fmt::print("\x1b[2J");
  for (;;) {
    const TimePoint next = SteadyClock().Now() + kPeriod;
    const Size size = ScreenSize();
    std::vector<std::string> lines = screen.Lines(size.width);
    if (!status.ok()) lines.insert(lines.begin(), "NO ANSWER: " + status.message());
    if (draws) {
      Draw(std::move(lines), size.height);
    } else {
      for (const std::string& line : lines) fmt::print("{}\n", line);
    }
    if (once) return kExitFine;
    if (std::fflush(stdout) != 0) return kExitFailed;
    std::this_thread::sleep_until(next);
    status = Refresh(server, &screen);
  }
}

}  // namespace

void AddTopCommand(CLI::App& app, int* exit_code) {
  CLI::App* const command = app.add_subcommand(
      "top", "Show what a server does, each second: its status page in a terminal");
  const auto verb = std::make_shared<TopVerb>();
  command->add_option("URL", verb->address, "Where the server listens")->capture_default_str();
  command->add_flag("--once", verb->once, "Print it once and end");
  SetExamples(*command, {"embercache top", "embercache top http://127.0.0.1:9000 --once"});
  command->callback([verb, exit_code] {
    const auto server = ParseServerAddress(verb->address);
    *exit_code = server.ok() ? Watch(*server, verb->once) : Fail(server.status(), kExitUsage);
  });
}

}  // namespace embercache
