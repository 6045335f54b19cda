#include "src/cli/describe_app.h"

#include <algorithm>
#include <sstream>

namespace embercache {
namespace {

OptionView Describe(const CLI::Option& option) {
  OptionView view;
  for (const std::string& name : option.get_snames()) view.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) view.names.push_back("--" + name);
  view.takes_value = option.get_expected_max() != 0;
  // Without the checks that CLI11 appends.
  if (view.takes_value) {
    view.value = option.get_type_name();
    view.value.resize(std::min(view.value.find(':'), view.value.size()));
  }
  if (view.names.empty()) view.value = option.get_name(true);
  view.description = option.get_description();
  view.default_value = option.get_default_str();
  view.required = option.get_required();
  return view;
}

std::vector<std::string> ExamplesOf(const CLI::App& command) {
  std::vector<std::string> examples;
  std::istringstream footer(command.get_footer());
  for (std::string line; std::getline(footer, line);) {
    if (line.starts_with("  ")) examples.push_back(line.substr(2));
  }
  return examples;
}

}  // namespace

std::vector<CommandView> DescribeCommands(const CLI::App& app) {
  std::vector<CommandView> views;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    CommandView view{command->get_name(), command->get_description(), {}, ExamplesOf(*command)};
    for (const CLI::Option* option : command->get_options()) {
      view.options.push_back(Describe(*option));
    }
    views.push_back(std::move(view));
  }
  return views;
}

}  // namespace embercache
