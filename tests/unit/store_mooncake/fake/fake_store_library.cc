// A library with Mooncake's C ABI, over files in FAKE_MOONCAKE_DIR, that fails as it is told by the
// file `fault.<operation>` there: {"kind": …, "times": n}. As the real one it crashes on a handle
// that is not set up. mooncake/store.py is its counterpart for the wheel.

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "embercache/digest.h"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kInvalid = -600;
constexpr int kNotFound = -704;
constexpr int kTransferFailed = -800;

struct Store {
  bool ready = false;
  std::mutex mutex;
  std::set<std::string> busy;
};

Store& Ready(void* store) {
  auto* const fake = static_cast<Store*>(store);
  if (fake == nullptr || !fake->ready) raise(SIGSEGV);
  return *fake;
}

fs::path Folder() {
  return std::getenv("FAKE_MOONCAKE_DIR");
}

fs::path Place(const std::string& key) {
  return Folder() / (embercache::Sha256Of(std::as_bytes(std::span(key))).ToHex() + ".object");
}

// The fault that strikes this call; null when none does.
json Fault(const std::string& op) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const fs::path path = Folder() / ("fault." + op);
  std::ifstream file(path);
  json told = json::parse(std::string(std::istreambuf_iterator<char>(file), {}), nullptr, false);
  if (!told.is_object()) return nullptr;
  const int times = told["times"].get<int>() - 1;
  told["times"] = times;
  if (times <= 0) {
    fs::remove(path);
    return told;
  }
  std::ofstream(path.string() + ".new") << told.dump();
  fs::rename(path.string() + ".new", path);
  return told;
}

void WriteLate(std::vector<std::pair<void*, size_t>> parts) {
  std::thread([parts = std::move(parts)] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    for (const auto& [memory, bytes] : parts) std::memset(memory, 0xEE, bytes);
  }).detach();
}

// Whether the call is answered by the fault: `*all` by the call, `results` by its items.
template <typename Code>
bool Strike(const json& told, size_t count, Code* results, int* all,
            const std::vector<std::pair<void*, size_t>>& parts = {}) {
  if (told.is_null()) return false;
  const std::string kind = told["kind"];
  *all = 0;
  if (kind == "code" || kind == "late") {
    if (kind == "late") WriteLate(parts);
    const int code = kind == "late" ? kTransferFailed : told["code"].get<int>();
    for (size_t i = 0; i < count; ++i) results[i] = code;
    return true;
  }
  if (kind == "short") {  // the last is not answered
    for (size_t i = 0; i + 1 < count; ++i) results[i] = 0;
    return true;
  }
  if (kind == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
  if (kind == "crash") raise(SIGSEGV);
  if (kind == "raise") {
    *all = -1;
    return true;
  }
  if (kind == "slow") {
    std::this_thread::sleep_for(std::chrono::duration<double>(told["seconds"].get<double>()));
  }
  return false;
}

// For calls that answer one code.
bool Strike(const json& told, int* code) {
  return Strike(told, 1, code, code);
}

int PutOne(Store& store, const std::string& key, const void* memory, size_t bytes) {
  {
    const std::lock_guard lock(store.mutex);
    // The second: two puts of a key at once in one process.
    if (!store.busy.insert(key).second) return kInvalid;
  }
  int all = 0;
  int code = 0;
  Strike(Fault("put_one"), 1, &code, &all);
  const fs::path path = Place(key);
  if (!fs::exists(path)) {
    const fs::path own =
        path.string() + "." + std::to_string(getpid()) + "." + std::to_string(gettid());
    std::ofstream(own, std::ios::binary)
        .write(static_cast<const char*>(memory), static_cast<std::streamsize>(bytes));
    std::error_code error;
    fs::create_hard_link(own, path, error);  // the first writer wins
    fs::remove(own);
  }
  const std::lock_guard lock(store.mutex);
  store.busy.erase(key);
  return 0;
}

int64_t GetOne(const std::string& key, void* memory, size_t bytes) {
  std::ifstream file(Place(key), std::ios::binary | std::ios::ate);
  if (!file) return kNotFound;
  const auto object_bytes = static_cast<size_t>(file.tellg());
  if (object_bytes > bytes) return kInvalid;
  file.seekg(0);
  file.read(static_cast<char*>(memory), static_cast<std::streamsize>(object_bytes));
  return static_cast<int64_t>(object_bytes);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

void* mooncake_store_create() {
  // Never freed, so that calls after destroy can be told.
  static auto& all = *new std::deque<Store>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return &all.emplace_back();
}

void mooncake_store_destroy(void* store) {
  int code = 0;
  Strike(Fault("destroy"), &code);
  Ready(store).ready = false;
}

int mooncake_store_setup(void* store, const char* local_hostname, const char* metadata_server,
                         uint64_t segment_size, uint64_t buffer_size, const char* protocol,
                         const char* device_name, const char* master) {
  std::ofstream(Folder() / "setup.json") << json{{local_hostname, metadata_server, segment_size,
                                                  buffer_size, protocol, device_name, master},
                                                 json::object()}
                                                .dump();
  int code = 0;
  if (Strike(Fault("setup"), &code)) return code;
  static_cast<Store*>(store)->ready = true;
  return 0;
}

int mooncake_store_register_buffer(void* store, void*, size_t) {
  Ready(store);
  return 0;
}

int mooncake_store_unregister_buffer(void* store, void*) {
  Ready(store);
  return 0;
}

int mooncake_store_batch_put_from(void* store, const char** keys, void** buffers,
                                  const size_t* sizes, size_t count, const void* config,
                                  int* results) {
  Store& fake = Ready(store);
  if (config != nullptr) return -1;  // whose layout is not known
  int all = 0;
  if (Strike(Fault("put"), count, results, &all)) return all;
  for (size_t i = 0; i < count; ++i) results[i] = PutOne(fake, keys[i], buffers[i], sizes[i]);
  return 0;
}

int mooncake_store_batch_get_into(void* store, const char** keys, void** buffers,
                                  const size_t* sizes, size_t count, int64_t* results) {
  Ready(store);
  const json told = Fault("get");
  std::vector<std::pair<void*, size_t>> parts;
  for (size_t i = 0; i < count; ++i) parts.emplace_back(buffers[i], sizes[i]);
  int all = 0;
  if (Strike(told, count, results, &all, parts)) return all;
  for (size_t i = 0; i < count; ++i) results[i] = GetOne(keys[i], buffers[i], sizes[i]);
  if (told.is_object() && told["kind"] == "flip") std::memset(buffers[0], 0xEE, 1);
  return 0;
}

int mooncake_store_batch_is_exist(void* store, const char** keys, size_t count, int* results) {
  Ready(store);
  const json told = Fault("exist");
  int all = 0;
  if (Strike(told, count, results, &all)) return all;
  for (size_t i = 0; i < count; ++i) {
    results[i] = fs::exists(Place(keys[i])) ? 1 : 0;
    if (told.is_object() && told["kind"] == "vanish") fs::remove(Place(keys[i]));
  }
  return 0;
}

int64_t mooncake_store_get_size(void* store, const char* key) {
  Ready(store);
  int code = 0;
  if (Strike(Fault("size"), &code)) return code;
  std::error_code error;
  const auto bytes = fs::file_size(Place(key), error);
  return error ? kNotFound : static_cast<int64_t>(bytes);
}

int mooncake_store_remove(void* store, const char* key, int) {
  Ready(store);
  int code = 0;
  if (Strike(Fault("remove"), &code)) return code;
  return fs::remove(Place(key)) ? 0 : kNotFound;
}

}  // extern "C"
#pragma GCC visibility pop
