#include "src/cli/store_flags.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace embercache {
namespace {

Result<std::string> ReadConfig(const std::string& text) {
  if (text.starts_with('{')) return text;
  std::ifstream file(text);
  std::ostringstream content;
  content << file.rdbuf();
  if (file) return content.str();
  return Status::Invalid(fmt::format(
      "--mm-global-cache-config '{}' is neither a JSON object nor a file that can be read", text));
}

}  // namespace

void AddStoreFlags(CLI::App& command, StoreFlags* flags) {
  command.add_option("--mm-global-cache-backend", flags->backend, "Kind of store (file)")
      ->type_name("NAME");
  command
      .add_option("--mm-global-cache-config", flags->config,
                  "Options of the store: a JSON object, or a file with one")
      ->type_name("JSON|FILE");
  command
      .add_option("--file-store-dir", flags->file_store_dir,
                  "Folder of the file store; short for --mm-global-cache-config '{\"dir\":…}'")
      ->type_name("DIR");
}

Result<StoreChoice> StoreChoiceFrom(const StoreFlags& flags) {
  StoreChoice choice;
  if (flags.backend) choice.backend = *flags.backend;
  if (flags.file_store_dir && flags.config) {
    return Status::Invalid("--file-store-dir and --mm-global-cache-config exclude each other");
  }
  if (flags.file_store_dir) {
    if (choice.backend != "file") {
      return Status::Invalid(
          fmt::format("--file-store-dir is for the backend file, not {}", choice.backend));
    }
    choice.config_json = nlohmann::json{{"dir", *flags.file_store_dir}}.dump();
  } else if (flags.config) {
    EMBERCACHE_ASSIGN_OR_RETURN(choice.config_json, ReadConfig(*flags.config));
  }
  return choice;
}

}  // namespace embercache
