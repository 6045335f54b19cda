#include <fmt/format.h>

#include "src/cli/describe_app.h"
#include "src/server/version.h"

namespace embercache {
namespace {

// Text of roff: no hyphenation of options, no line that begins like a request.
std::string Roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) {
      out += "\\&";
      out += c;
    } else {
      out += c;
    }
  }
  return out;
}

std::string OptionText(const OptionView& option) {
  std::string names;
  for (const std::string& name : option.names) {
    names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", Roff(name));
  }
  if (!option.value.empty()) {
    names += fmt::format("{}\\fI{}\\fR", names.empty() ? "" : " ", Roff(option.value));
  }
  std::string text = fmt::format(".TP\n{}\n{}", names, Roff(option.description));
  if (!option.default_value.empty() && option.takes_value) {
    text += fmt::format(" [{}]", Roff(option.default_value));
  }
  if (option.required) text += " (required)";
  return text + "\n";
}

std::string CommandText(const CommandView& command) {
  std::string text = fmt::format(".SS {}\n{}\n", Roff(command.name), Roff(command.description));
  for (const OptionView& option : command.options) text += OptionText(option);
  if (command.examples.empty()) return text;
  text += ".PP\nExamples:\n.PP\n.nf\n";
  for (const std::string& line : command.examples) text += fmt::format("  {}\n", Roff(line));
  return text + ".fi\n";
}

constexpr char kTail[] = R"(.SH ENVIRONMENT
Every setting of serve is also a variable: \fB\-\-queue\-items\fR is \fBEMBERCACHE_QUEUE_ITEMS\fR.
Flags win over variables, these over the file that \fB\-\-config\fR names.
.SH EXIT STATUS
.TP
0
fine
.TP
1
cannot start, or failed; one line on stderr says why
.TP
2
wrong usage
.TP
3
not found
)";

}  // namespace

std::string ManualPage(const std::vector<CommandView>& commands, std::string_view description) {
  std::string page = fmt::format(
      ".\\\" Made by `embercache man`.\n"
      ".TH EMBERCACHE 1 \"\" \"EmberCache {}\" \"User Commands\"\n"
      ".SH NAME\nembercache \\- {}\n"
      ".SH SYNOPSIS\n\\fBembercache\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR]...\n"
      ".SH COMMANDS\n",
      Version(), Roff(description));
  for (const CommandView& command : commands) page += CommandText(command);
  return page + kTail;
}

}  // namespace embercache
