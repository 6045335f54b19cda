// Our side of bench/mooncake/run:
//
//   mooncake_bench OPTIONS-AS-JSON
//
// Says "up" and the bridge's process once the store is up; then each line on stdin,
// "put|get|exist BYTES BATCH PREFIX VERIFY", moves one batch in pages that do not touch each other,
// or asks for it, and is answered by the seconds that it took.

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxh_x86dispatch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "src/store/mooncake/mooncake_store.h"

namespace embercache {
namespace {

constexpr size_t kPageBytes = 256 << 10;
constexpr size_t kMemoryBytes = 512ULL << 20;

[[noreturn]] void Fail(const std::string& what) {
  fmt::print(stderr, "mooncake_bench: {}\n", what);
  std::exit(1);
}

BufferRegion MakeMemory() {
  const int fd = memfd_create("bench", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, kMemoryBytes) != 0) Fail("memfd");
  void* const base = mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) Fail("mmap");
  const MutableBuffer memory(static_cast<std::byte*>(base), kMemoryBytes);
  std::fill(memory.begin(), memory.end(), std::byte{7});
  return {memory, fd, 0};
}

// The pages of each item of a batch.
std::vector<std::vector<MutableBuffer>> PagesOf(MutableBuffer memory, size_t bytes, size_t batch) {
  std::vector<std::vector<MutableBuffer>> items(batch);
  size_t place = 0;
  for (auto& pages : items) {
    for (size_t at = 0; at < bytes; at += kPageBytes) {
      pages.push_back(memory.subspan(place, std::min(kPageBytes, bytes - at)));
      place += 2 * kPageBytes;
    }
  }
  return items;
}

// As verification does it.
uint64_t HashOf(const std::vector<std::vector<MutableBuffer>>& items) {
  uint64_t sum = 0;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  for (const auto& pages : items) {
    XXH3_128bits_reset(state.get());
    for (const MutableBuffer& page : pages) {
      XXH3_128bits_update(state.get(), page.data(), page.size());
    }
    sum += XXH3_128bits_digest(state.get()).low64;
  }
  return sum;
}

void Put(EmbeddingStore& store, const std::vector<std::string>& keys,
         const std::vector<std::vector<MutableBuffer>>& pages) {
  std::vector<std::vector<ConstBuffer>> sources;
  for (const auto& item : pages) sources.emplace_back(item.begin(), item.end());
  std::vector<PutItem> puts;
  for (size_t i = 0; i < keys.size(); ++i) puts.push_back({keys[i], sources[i], {}});
  for (const PutResult& put : store.BatchPutFromMultiBuffers(puts, {})) {
    if (put.outcome != PutOutcome::kAccepted) Fail(put.status.ToString());
  }
}

void Get(EmbeddingStore& store, const std::vector<std::string>& keys,
         const std::vector<std::vector<MutableBuffer>>& pages) {
  std::vector<GetItem> gets;
  for (size_t i = 0; i < keys.size(); ++i) gets.push_back({keys[i], pages[i]});
  for (const GetResult& get : store.BatchGetIntoMultiBuffers(gets, {})) {
    if (get.outcome != GetOutcome::kHit) Fail(get.status.ToString());
  }
}

void Exist(EmbeddingStore& store, const std::vector<std::string>& keys,
           const std::vector<std::vector<MutableBuffer>>&) {
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  for (const StatResult& stat : store.BatchIsExist(views, {})) {
    if (!stat.found) Fail("an object is not there: " + stat.status.ToString());
  }
}

void Serve(EmbeddingStore& store, MutableBuffer memory) {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string op;
    std::string prefix;
    size_t bytes = 0;
    size_t batch = 0;
    bool verify = false;
    words >> op >> bytes >> batch >> prefix >> verify;
    const auto pages = PagesOf(memory, bytes, batch);
    std::vector<std::string> keys;
    for (size_t i = 0; i < batch; ++i) keys.push_back(fmt::format("{}_{}", prefix, i));
    const auto start = std::chrono::steady_clock::now();
    uint64_t hash = verify && op == "put" ? HashOf(pages) : 0;
    (op == "put" ? Put : op == "get" ? Get : Exist)(store, keys, pages);
    if (verify && op == "get") hash = HashOf(pages);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    fmt::print("{:.9f} {:x}\n", took.count(), hash);
    std::fflush(stdout);
  }
}

int Main(const char* json) {
  StoreConfig config;
  config.json = json;
  auto store = CreateMooncakeStore(config);
  if (!store.ok()) Fail(store.status().ToString());
  const BufferRegion memory = MakeMemory();
  if (const Status status = (*store)->RegisterBuffer(memory); !status.ok()) Fail(status.ToString());
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while ((*store)->Health().state != StoreState::kUp) {
    if (std::chrono::steady_clock::now() > give_up) Fail((*store)->Health().detail);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const auto description = nlohmann::json::parse((*store)->DescribeJson());
  fmt::print("up {}\n", description["bridge_pid"].get<int>());
  std::fflush(stdout);
  Serve(**store, memory.memory);
  return 0;
}

}  // namespace
}  // namespace embercache

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: mooncake_bench OPTIONS-AS-JSON\n");
    return 2;
  }
  return embercache::Main(argv[1]);
}
