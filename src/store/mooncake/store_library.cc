#include "src/store/mooncake/store_library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

namespace embercache::mooncake {
namespace {

constexpr const char* kDevices = "/sys/class/infiniband";

template <typename Function>
void Resolve(void* handle, const std::string& name, Function* function,
             std::vector<std::string>& missing) {
  *function = reinterpret_cast<Function>(dlsym(handle, name.c_str()));
  if (*function == nullptr) missing.push_back(name);
}

bool FileContains(const std::filesystem::path& path, std::string_view text) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat status{};
  bool found = false;
  if (fstat(fd, &status) == 0 && status.st_size > 0) {
    const auto bytes = static_cast<size_t>(status.st_size);
    void* const memory = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (memory != MAP_FAILED) {
      found = memmem(memory, bytes, text.data(), text.size()) != nullptr;
      munmap(memory, bytes);
    }
  }
  close(fd);
  return found;
}

// The library and what was loaded from beside it.
std::vector<std::filesystem::path> FilesOf(const std::string& library) {
  struct Found {
    std::filesystem::path folder;
    std::vector<std::filesystem::path> files;
  } found{std::filesystem::path(library).parent_path(), {library}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* const files = static_cast<Found*>(data);
        const std::filesystem::path path(info->dlpi_name);
        if (path.parent_path() == files->folder) files->files.push_back(path);
        return 0;
      },
      &found);
  return found.files;
}

}  // namespace

Result<StoreLibrary> StoreLibrary::Load(const std::string& name) {
  // Lazily: what a build has for hardware that is not here need not resolve.
  void* const handle = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) {
    return Status::NotFound(fmt::format("Mooncake's C library does not load: {}", dlerror()));
  }
  StoreLibrary library;
  std::vector<std::string> missing;
  const auto resolve = [&](const char* function, auto* pointer) {
    Resolve(handle, std::string("mooncake_store_") + function, pointer, missing);
  };
  resolve("create", &library.create);
  resolve("destroy", &library.destroy);
  resolve("setup", &library.setup);
  resolve("batch_put_from", &library.batch_put_from);
  resolve("batch_get_into", &library.batch_get_into);
  resolve("batch_is_exist", &library.batch_is_exist);
  resolve("get_size", &library.get_size);
  resolve("remove", &library.remove);
  resolve("register_buffer", &library.register_buffer);
  resolve("unregister_buffer", &library.unregister_buffer);
  if (!missing.empty()) {
    return Status::NotFound(
        fmt::format("'{}' is no Mooncake C library of 0.3.13 or later: it has no {}", name,
                    fmt::join(missing, ", ")));
  }
  Dl_info info{};
  const bool known = dladdr(reinterpret_cast<void*>(library.create), &info) != 0;
  library.file = known ? info.dli_fname : name;
  return library;
}

Status StoreLibrary::CheckProtocol(const std::string& protocol) const {
  if (protocol == "efa") {
    for (const auto& path : FilesOf(file)) {
      if (FileContains(path, "EfaTransport")) return Status::Ok();
    }
    return Status::Unavailable(
        fmt::format("protocol efa: {} is built without it; install one that has it", file));
  }
  std::error_code error;
  const bool devices = !std::filesystem::is_empty(kDevices, error) && !error;
  if (protocol == "rdma" && !devices) {
    return Status::Unavailable(
        fmt::format("protocol rdma: there is no RDMA device ({} is empty); use tcp", kDevices));
  }
  return Status::Ok();
}

}  // namespace embercache::mooncake
