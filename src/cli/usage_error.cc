#include "src/cli/usage_error.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/cli/option_types.h"

namespace embercache {
namespace {

using Words = std::vector<std::string>;

// Optimal string alignment: the fewest characters to insert, drop, change or swap with the next.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> least(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        least[i][j] = i + j;
        continue;
      }
      const size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      least[i][j] =
          std::min({least[i - 1][j] + 1, least[i][j - 1] + 1, least[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        least[i][j] = std::min(least[i][j], least[i - 2][j - 2] + 1);
      }
    }
  }
  return least[a.size()][b.size()];
}

bool IsFlag(const std::string& word) {
  return word.size() > 1 && word.front() == '-';
}

Words FlagsOf(const CLI::App& app) {
  Words flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

Words CommandsOf(const CLI::App& app) {
  Words names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

bool Has(const Words& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// "--port=1" is about --port.
std::string FlagOf(const std::string& word) {
  return word.substr(0, word.find('='));
}

std::string DidYouMean(const std::optional<std::string>& near) {
  return near ? fmt::format("; did you mean {}?", *near) : "";
}

std::string WithHelp(const std::string& message, const std::string& command) {
  return fmt::format("{}{} {} --help", message, message.ends_with('?') ? " See" : "; see", command);
}

// A word that no option takes: a folder, most likely, without the flag that names it.
std::string StrayMessage(const std::string& command, const std::string& word, const Words& flags) {
  const char* const hint = Has(flags, "--model") ? "; the folder of a model is named by --model DIR"
                           : Has(flags, "--file-store-dir")
                               ? "; the folder of a store is named by --file-store-dir DIR"
                               : "";
  return fmt::format("{} does not take {}{}", command, Quoted(word), hint);
}

}  // namespace

std::optional<std::string> Nearest(std::string_view word, const Words& candidates) {
  std::optional<std::string> nearest;
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = Distance(word, candidate);
    if (distance >= least) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

std::optional<std::string> WrongCommand(const CLI::App& app, const Words& words) {
  if (words.empty()) {
    return WithHelp("there is no command; try: embercache serve --model DIR", "embercache");
  }
  const std::string& word = words.front();
  if (!IsFlag(word)) {
    const Words commands = CommandsOf(app);
    if (Has(commands, word)) return std::nullopt;
    return WithHelp(
        fmt::format("there is no command {}{}", Quoted(word), DidYouMean(Nearest(word, commands))),
        "embercache");
  }
  const std::string flag = FlagOf(word);
  if (app.get_option_no_throw(flag) != nullptr) return std::nullopt;
  const auto near = Nearest(flag, FlagsOf(app));
  const std::string hint =
      near ? DidYouMean(near) : "; those of a command stand behind the command's name";
  return WithHelp(fmt::format("there is no option {}{}", Quoted(flag), hint), "embercache");
}

std::string UsageMessage(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  if (parsed.empty()) return error.what();
  const CLI::App& command = *parsed.front();
  const Words rest = command.remaining();
  std::string message = error.what();
  if (!rest.empty()) {
    const Words flags = FlagsOf(command);
    const std::string flag = FlagOf(rest.front());
    message = IsFlag(rest.front()) ? fmt::format("{} has no option {}{}", command.get_name(),
                                                 Quoted(flag), DidYouMean(Nearest(flag, flags)))
                                   : StrayMessage(command.get_name(), rest.front(), flags);
  } else if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ValidationError)) {
    return message;  // it says what would be right
  }
  return WithHelp(message, "embercache " + command.get_name());
}

}  // namespace embercache
