#include "src/cli/store_flags.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "src/cli/option_types.h"
#include "src/cli/text_file.h"

namespace embercache {
namespace {

Result<std::string> ReadConfig(const std::string& text) {
  if (IsInlineConfig(text)) return text;
  Result<std::string> content = ReadTextFile(text);
  if (content.ok()) return content;
  return Status::Invalid(
      fmt::format("--mm-global-cache-config has to be a JSON object or a file with one: {}",
                  content.status().message()));
}

Result<std::string> DirConfig(const std::string& dir) {
  try {
    return nlohmann::json{{"dir", dir}}.dump();
  } catch (const nlohmann::json::type_error&) {
    return Status::Invalid(fmt::format("--file-store-dir {} has to be UTF-8", Quoted(dir)));
  }
}

}  // namespace

bool IsInlineConfig(const std::string& config) {
  const size_t begin = config.find_first_not_of(" \t\r\n");
  return begin != std::string::npos && config[begin] == '{';
}

void AddStoreFlags(CLI::App& command, StoreFlags* flags) {
  command.add_option("--mm-global-cache-backend", flags->backend, "Kind of store (file)")
      ->type_name("NAME");
  command
      .add_option("--mm-global-cache-config", flags->config,
                  "Options of the store: a JSON object, or a file with one")
      ->type_name(kObjectType);
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
    EMBERCACHE_ASSIGN_OR_RETURN(choice.config_json, DirConfig(*flags.file_store_dir));
  } else if (flags.config) {
    EMBERCACHE_ASSIGN_OR_RETURN(choice.config_json, ReadConfig(*flags.config));
  } else if (choice.backend == "file") {
    return Status::Invalid("the file store needs its folder: --file-store-dir DIR");
  }
  return choice;
}

}  // namespace embercache
