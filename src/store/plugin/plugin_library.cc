#include "src/store/plugin/plugin_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

namespace embercache {
namespace {

constexpr char kEntryPoint[] = "embercache_store_plugin";
// Where the optional functions begin.
constexpr size_t kRequiredBytes = offsetof(embercache_store_plugin_table, list);

Status CheckTable(const embercache_store_plugin_table& table, const std::string& path) {
  if (table.abi_version != EMBERCACHE_STORE_PLUGIN_ABI_VERSION) {
    return Status::Invalid(fmt::format("store plugin '{}' has ABI version {}, this build takes {}",
                                       path, table.abi_version,
                                       EMBERCACHE_STORE_PLUGIN_ABI_VERSION));
  }
  if (table.struct_size < kRequiredBytes) {
    return Status::Invalid(
        fmt::format("store plugin '{}' has a table of {} bytes, ABI version {} has at least {}",
                    path, table.struct_size, table.abi_version, kRequiredBytes));
  }
  const std::pair<const char*, bool> functions[] = {
      {"open", table.open != nullptr},     {"stat", table.stat != nullptr},
      {"get", table.get != nullptr},       {"put", table.put != nullptr},
      {"remove", table.remove != nullptr}, {"close", table.close != nullptr}};
  for (const auto& [name, is_there] : functions) {
    if (is_there) continue;
    return Status::Invalid(
        fmt::format("store plugin '{}' has no function '{}' in its table", path, name));
  }
  return Status::Ok();
}

}  // namespace

Result<embercache_store_plugin_table> LoadStorePlugin(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Status::Invalid(fmt::format("store plugin '{}' does not load: {}", path, dlerror()));
  }
  const auto entry_point =
      reinterpret_cast<const embercache_store_plugin_table* (*)()>(dlsym(library, kEntryPoint));
  if (entry_point == nullptr) {
    return Status::Invalid(fmt::format(
        "'{}' is no store plugin: it does not export the function {}", path, kEntryPoint));
  }
  const embercache_store_plugin_table* const offered = entry_point();
  if (offered == nullptr) {
    return Status::Invalid(fmt::format("store plugin '{}' returns no table", path));
  }
  // Not a byte more than the plugin says it has; the version first, the rest may have another form.
  embercache_store_plugin_table table = {};
  std::memcpy(&table, offered, offsetof(embercache_store_plugin_table, open));
  if (table.abi_version == EMBERCACHE_STORE_PLUGIN_ABI_VERSION) {
    std::memcpy(&table, offered, std::min(table.struct_size, sizeof table));
  }
  EMBERCACHE_RETURN_IF_ERROR(CheckTable(table, path));
  return table;
}

}  // namespace embercache
