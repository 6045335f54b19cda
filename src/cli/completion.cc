#include <fmt/format.h>

#include "embercache/store_factory.h"
#include "src/cli/describe_app.h"

namespace embercache {
namespace {

constexpr std::string_view kBackendOption = "--mm-global-cache-backend";

std::string BackendNames() {
  EmbeddingStoreFactory factory;
  RegisterBuiltinBackends(factory);
  return fmt::format("{}", fmt::join(factory.BackendNames(), " "));
}

std::string CommandNames(const std::vector<CommandView>& commands) {
  std::string names;
  for (const CommandView& command : commands) names += (names.empty() ? "" : " ") + command.name;
  return names;
}

std::string OptionNames(const CommandView& command) {
  std::string names;
  for (const OptionView& option : command.options) {
    for (const std::string& name : option.names) names += (names.empty() ? "" : " ") + name;
  }
  return names;
}

// `escaped` are preceded by a backslash.
std::string Escape(std::string_view text, std::string_view escaped) {
  std::string out;
  for (const char c : text) {
    if (escaped.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// Inside '…' of bash and zsh.
std::string Quote(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return "'" + out + "'";
}

std::string BashScript(const std::vector<CommandView>& commands) {
  std::string cases;
  for (const CommandView& command : commands) {
    cases += fmt::format("    {}) options={} ;;\n", command.name, Quote(OptionNames(command)));
  }
  return fmt::format(R"(# bash completion for embercache; source it, or put it in
# /usr/share/bash-completion/completions/embercache
_embercache() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} options=
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W '{} --help --version' -- "$cur"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
{}  esac
  if [[ $prev == {} ]]; then
    COMPREPLY=($(compgen -W '{}' -- "$cur"))
  elif [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$cur"))
  else
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$cur"))
  fi
}}
complete -F _embercache embercache
)",
                     CommandNames(commands), cases, kBackendOption, BackendNames());
}

std::string ZshOption(const OptionView& option) {
  std::string lines;
  for (const std::string& name : option.names) {
    std::string line = fmt::format("{}[{}]", name, Escape(option.description, "[]:\\"));
    if (name == kBackendOption) {
      line += fmt::format(":name:({})", BackendNames());
    } else if (option.takes_value) {
      line += ":value:_files";
    }
    lines += fmt::format(" \\\n        {}", Quote(line));
  }
  return lines;
}

std::string ZshScript(const std::vector<CommandView>& commands) {
  std::string names;
  std::string cases;
  for (const CommandView& command : commands) {
    names +=
        fmt::format("    {}\n", Quote(command.name + ":" + Escape(command.description, ":\\")));
    cases += fmt::format("    {})\n      _arguments", command.name);
    for (const OptionView& option : command.options) cases += ZshOption(option);
    cases += " \\\n        '*:file:_files'\n      ;;\n";
  }
  return fmt::format(R"(#compdef embercache
# zsh completion for embercache; put it in a folder of $fpath as _embercache
_embercache() {{
  local -a commands
  commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{}  esac
}}
if [[ $funcstack[1] == _embercache ]]; then
  _embercache "$@"
else
  compdef _embercache embercache
fi
)",
                     names, cases);
}

std::string FishQuote(std::string_view text) {
  return "'" + Escape(text, "'\\") + "'";
}

std::string FishScript(const std::vector<CommandView>& commands) {
  std::string script =
      "# fish completion for embercache; put it in ~/.config/fish/completions/embercache.fish\n";
  for (const CommandView& command : commands) {
    script += fmt::format("complete -c embercache -f -n __fish_use_subcommand -a {} -d {}\n",
                          command.name, FishQuote(command.description));
    for (const OptionView& option : command.options) {
      if (option.names.empty()) continue;
      script +=
          fmt::format("complete -c embercache -n '__fish_seen_subcommand_from {}'", command.name);
      for (const std::string& name : option.names) {
        script += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (option.names.back() == kBackendOption) {
        script += fmt::format(" -x -a '{}'", BackendNames());
      } else if (option.takes_value) {
        script += " -r";
      }
      script += fmt::format(" -d {}\n", FishQuote(option.description));
    }
  }
  return script;
}

}  // namespace

Result<std::string> CompletionScript(const std::vector<CommandView>& commands,
                                     std::string_view shell) {
  if (shell == "bash") return BashScript(commands);
  if (shell == "zsh") return ZshScript(commands);
  if (shell == "fish") return FishScript(commands);
  return Status::Invalid(fmt::format("shell '{}' has to be bash, zsh or fish", shell));
}

}  // namespace embercache
