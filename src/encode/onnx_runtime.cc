#include "src/encode/onnx_runtime.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "src/base/mutex.h"

namespace embercache {
namespace {

namespace fs = std::filesystem;

// A library is taken as it is; a folder stands for the library in its lib/.
std::string LibraryPath(const std::string& library_or_root) {
  std::error_code error;
  if (!fs::is_directory(library_or_root, error)) return library_or_root;
  for (const char* name : {"libonnxruntime.so.1", "libonnxruntime.so"}) {
    const fs::path path = fs::path(library_or_root) / "lib" / name;
    if (fs::exists(path, error)) return path.string();
  }
  return (fs::path(library_or_root) / "lib" / "libonnxruntime.so.1").string();
}

struct Search {
  std::vector<std::string> paths;  // to try, in order
  std::string advice;              // where none of them is one
};

// Something that was asked for is tried alone.
Search WhereToLook(const std::string& option) {
  if (!option.empty()) return {{LibraryPath(option)}, "name another one, or none"};
  for (const char* variable : {"ONNXRUNTIME_LIBRARY", "ONNXRUNTIME_ROOT"}) {
    const char* value = std::getenv(variable);
    if (value == nullptr || *value == '\0') continue;
    return {{LibraryPath(value)},
            fmt::format("the variable {} is '{}'; it has to name {}, or be unset", variable, value,
                        variable == std::string_view("ONNXRUNTIME_ROOT")
                            ? "a folder with lib/libonnxruntime.so"
                            : "the library libonnxruntime.so")};
  }
  return {{LibraryPath(EMBERCACHE_ONNXRUNTIME_ROOT), "libonnxruntime.so.1", "libonnxruntime.so"},
          "scripts/bootstrap brings it; ONNXRUNTIME_LIBRARY may name another"};
}

Result<const OrtApi*> LoadApi(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Status::Unavailable(dlerror());
  auto* get_base = reinterpret_cast<const OrtApiBase* (*)()>(dlsym(library, "OrtGetApiBase"));
  if (get_base == nullptr) {
    return Status::Unavailable(fmt::format("{}: it is no ONNX Runtime", path));
  }
  const OrtApi* api = get_base()->GetApi(ORT_API_VERSION);
  if (api == nullptr) {
    return Status::Unavailable(
        fmt::format("{}: ONNX Runtime {} is too old; 1.{} or newer is needed", path,
                    get_base()->GetVersionString(), ORT_API_VERSION));
  }
  return api;
}

// Releases since 1.32 would keep a database of events in the user's home folder, and send them to
// Microsoft. The variable has to be there before the library is.
void ForbidTelemetry() {
  setenv("ORT_DISABLE_TELEMETRY", "1", 1);
}

Result<Ort::Env*> Load(const std::string& option) {
  ForbidTelemetry();
  std::string tried;
  const Search search = WhereToLook(option);
  for (const std::string& path : search.paths) {
    const Result<const OrtApi*> api = LoadApi(path);
    if (!api.ok()) {
      tried += fmt::format("{}{}", tried.empty() ? "" : "; ", api.status().message());
      continue;
    }
    Ort::InitApi(*api);
    try {
      return new Ort::Env(ORT_LOGGING_LEVEL_ERROR, "embercache");
    } catch (const Ort::Exception& error) {
      return Status::Unavailable(fmt::format("{}: {}", path, error.what()));
    }
  }
  return Status::Unavailable(
      fmt::format("ONNX Runtime cannot be loaded: {} ({})", tried, search.advice));
}

}  // namespace

Result<Ort::Env*> OnnxRuntime(const std::string& option) {
  // Both outlive every static: a session may be destroyed at exit.
  static auto& mutex = *new Mutex;
  static Ort::Env* env = nullptr;
  MutexLock lock(mutex);
  if (env == nullptr) {
    EMBERCACHE_ASSIGN_OR_RETURN(env, Load(option));
  }
  return env;
}

}  // namespace embercache
