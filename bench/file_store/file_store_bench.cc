// The file store against a bare loop of the same system calls, in one run:
//
//   file_store_bench DIR [ROUNDS]
//
// DIR should lie on the disk that matters; a folder is made in it and removed at the end. The bare
// loop reads the same files in the same way (O_DIRECT where they are not in the page cache) into
// the same pages, and writes, sizes and renames files of the same sizes. Gets hash what they read
// on both sides, as the layer above the store does. The rounds of both alternate, and each side
// begins every second one; a line of the table gives their medians.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <xxh_x86dispatch.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "embercache/digest.h"
#include "src/cache/envelope.h"
#include "src/store/file/file_store.h"
#include "src/store/file/object_name.h"
#include "src/store/store_call.h"

namespace embercache {
namespace {

constexpr size_t kMiB = 1 << 20;
constexpr size_t kPageBytes = 256 * 1024;

[[noreturn]] void Fail(std::string_view what) {
  fmt::print(stderr, "file_store_bench: {}\n", what);
  std::exit(1);
}

void Require(bool condition, std::string_view what) {
  if (!condition) Fail(what);
}

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Cost {
  double wall_s = 0;
  double cpu_s = 0;
};

Cost Measure(const std::function<void()>& work) {
  const double wall = WallSeconds();
  const double cpu = CpuSeconds();
  work();
  return {WallSeconds() - wall, CpuSeconds() - cpu};
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Memory for one object: pages that are aligned but do not touch.
class Pages {
 public:
  explicit Pages(size_t bytes) {
    const size_t pages = (bytes + kPageBytes - 1) / kPageBytes;
    map_bytes_ = pages * 2 * kPageBytes;
    void* const map = mmap(nullptr, map_bytes_, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    Require(map != MAP_FAILED, "no memory");
    map_ = static_cast<std::byte*>(map);
    for (size_t at = 0; at < bytes; at += kPageBytes) {
      const MutableBuffer page(map_ + 2 * at, std::min(kPageBytes, bytes - at));
      std::fill(page.begin(), page.end(), std::byte{7});
      buffers_.push_back(page);
      sources_.emplace_back(page);
      iovecs_.push_back({page.data(), page.size()});
    }
  }
  ~Pages() { munmap(map_, map_bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::span<const MutableBuffer> buffers() const { return buffers_; }
  std::span<const ConstBuffer> sources() const { return sources_; }
  const iovec* iovecs() const { return iovecs_.data(); }
  int count() const { return static_cast<int>(iovecs_.size()); }

  uint64_t Hash() const {
    const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                         XXH3_freeState);
    XXH3_128bits_reset(state.get());
    for (const MutableBuffer& page : buffers_) {
      XXH3_128bits_update(state.get(), page.data(), page.size());
    }
    return XXH3_128bits_digest(state.get()).low64;
  }

 private:
  std::byte* map_ = nullptr;
  size_t map_bytes_ = 0;
  std::vector<MutableBuffer> buffers_;
  std::vector<ConstBuffer> sources_;
  std::vector<iovec> iovecs_;
};

std::string KeyNumber(size_t number) {
  return "emb_" + Sha256Of(std::to_string(number)).ToHex();
}

std::unique_ptr<EmbeddingStore> OpenStore(const std::string& dir, std::string_view max_bytes) {
  StoreConfig config;
  config.json = fmt::format(R"({{"dir":"{}","max_bytes":"{}"}})", dir, max_bytes);
  auto store = CreateFileStore(config);
  Require(store.ok(), store.status().ToString());
  return std::move(*store);
}

void PutPages(EmbeddingStore& store, const std::string& key, const Pages& pages) {
  const PutItem item{key, pages.sources(), PutMode::kIfAbsent};
  const PutResult put = store.BatchPutFromMultiBuffers({&item, 1}, {}).at(0);
  Require(put.outcome == PutOutcome::kStored, put.status.ToString());
}

// Objects in one call, hashed as they come.
uint64_t GetPages(EmbeddingStore& store, std::span<const std::string> keys,
                  std::span<const Pages> pages) {
  std::vector<GetItem> items;
  std::vector<RunningChecksum> checksums(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) items.push_back({keys[i], pages[i].buffers()});
  const std::function<void(size_t, uint64_t)> received = [&](size_t i, uint64_t bytes) {
    checksums[i].ExtendTo(pages[i].sources(), bytes);
  };
  CallContext context;
  context.received = &received;
  for (const GetResult& get : store.BatchGetIntoMultiBuffers(items, context)) {
    Require(get.outcome == GetOutcome::kHit, get.status.ToString());
  }
  uint64_t sum = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    checksums[i].ExtendTo(pages[i].sources(), TotalBytes(pages[i].sources()));
    sum += checksums[i].Finish().low;
  }
  return sum;
}

// The bare loop's read, hash not included.
void ReadBare(const std::string& path, const Pages& pages, size_t bytes, bool direct) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
  struct stat info = {};
  Require(fd >= 0 && fstat(fd, &info) == 0, "open " + path);
  Require(preadv(fd, pages.iovecs(), pages.count(), 0) == static_cast<ssize_t>(bytes), "read");
  close(fd);
}

void WriteBare(const std::string& dir, const std::string& name, const Pages& pages, size_t bytes) {
  const std::string temp = dir + "/bare.tmp";
  const int fd = open(temp.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_DIRECT, 0666);
  Require(fd >= 0 && fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0, "make " + temp);
  Require(pwritev(fd, pages.iovecs(), pages.count(), 0) == static_cast<ssize_t>(bytes), "write");
  Require(rename(temp.c_str(), name.c_str()) == 0, "rename");
  close(fd);
}

void SetCached(const std::string& path, const Pages& pages, size_t bytes, bool cached) {
  if (cached) return ReadBare(path, pages, bytes, /*direct=*/false);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  fdatasync(fd);
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  close(fd);
}

// Runs both sides round by round and prints their medians. `prepare` is not measured.
void Compare(std::string_view name, int rounds, size_t round_bytes,
             const std::function<void()>& prepare, const std::function<void()>& store,
             const std::function<void()>& bare) {
  std::vector<double> wall[2];
  std::vector<double> cpu[2];
  for (int round = 0; round < rounds; ++round) {
    for (const int turn : {0, 1}) {
      const int side = (round + turn) % 2;
      prepare();
      const Cost cost = Measure(side == 0 ? store : bare);
      wall[side].push_back(cost.wall_s);
      cpu[side].push_back(cost.cpu_s);
    }
  }
  const double gib = static_cast<double>(round_bytes) / (1 << 30);
  const double gb = static_cast<double>(round_bytes) / 1e9;
  const double walls[] = {Median(wall[0]), Median(wall[1])};
  fmt::print("{:<22} {:>8.2f} {:>8.2f} {:>6.0f} % {:>12.3f} {:>12.3f}\n", name, gb / walls[0],
             gb / walls[1], 100 * walls[1] / walls[0], Median(cpu[0]) / gib, Median(cpu[1]) / gib);
}

void CompareSize(const std::string& dir, size_t bytes, int rounds) {
  const size_t objects = std::max<size_t>(4, 128 * kMiB / bytes);
  const std::string store_dir = dir + "/store";
  const std::string bare_dir = dir + "/bare";
  std::filesystem::create_directories(bare_dir);
  const auto store = OpenStore(store_dir, "10GiB");
  const Pages pages(bytes);
  std::vector<std::string> keys;
  std::vector<std::string> paths;
  std::vector<std::string> bare_paths;
  for (size_t i = 0; i < objects; ++i) {
    keys.push_back(KeyNumber(i));
    paths.push_back(store_dir + "/" + ObjectPath(keys.back()));
    bare_paths.push_back(fmt::format("{}/{}", bare_dir, i));
  }
  const auto clear = [&] {
    for (const std::string& key : keys) {
      const RemoveItem item{key, {}};
      store->BatchRemove({&item, 1}, {});
    }
    for (const std::string& path : bare_paths) unlink(path.c_str());
  };
  const std::string size = fmt::format("{} KiB", bytes / 1024);

  Compare(
      "put " + size, rounds, objects * bytes, clear,
      [&] {
        for (const std::string& key : keys) PutPages(*store, key, pages);
      },
      [&] {
        for (const std::string& path : bare_paths) WriteBare(bare_dir, path, pages, bytes);
      });
  clear();
  for (const std::string& key : keys) PutPages(*store, key, pages);
  uint64_t sum = 0;  // so that no hash is left out
  for (const bool cached : {false, true}) {
    Compare((cached ? "get warm " : "get cold ") + size, rounds, objects * bytes,
            [&] {
              for (const std::string& path : paths) SetCached(path, pages, bytes, cached);
            },
            [&] {
              for (const std::string& key : keys) {
                sum += GetPages(*store, {&key, 1}, {&pages, 1});
              }
            },
            [&] {
              for (const std::string& path : paths) {
                ReadBare(path, pages, bytes, !cached);
                sum += pages.Hash();
              }
            });
  }
  constexpr size_t kBatch = 4;
  const Pages batch[kBatch] = {Pages(bytes), Pages(bytes), Pages(bytes), Pages(bytes)};
  for (const bool cached : {false, true}) {
    Compare((cached ? "4 gets warm " : "4 gets cold ") + size, rounds,
            objects / kBatch * kBatch * bytes,
            [&] {
              for (const std::string& path : paths) SetCached(path, pages, bytes, cached);
            },
            [&] {
              for (size_t i = 0; i + kBatch <= objects; i += kBatch) {
                sum += GetPages(*store, std::span(keys).subspan(i, kBatch), batch);
              }
            },
            [&] {
              for (size_t i = 0; i < objects / kBatch * kBatch; ++i) {
                ReadBare(paths[i], batch[i % kBatch], bytes, !cached);
                sum += batch[i % kBatch].Hash();
              }
            });
  }
  Require(sum != 0, "hashes");
  clear();
}

// Ten times the objects cost the same each, unless a call scans the whole folder.
void ListAndStat(const std::string& dir, size_t objects) {
  const auto store = OpenStore(fmt::format("{}/small_{}", dir, objects), "10GiB");
  const Pages page(4096);
  for (size_t i = 0; i < objects; ++i) PutPages(*store, KeyNumber(i), page);
  const double start = WallSeconds();
  std::vector<std::string> ids;
  std::string cursor;
  do {
    const auto listed = store->List(cursor, 100, {});
    Require(listed.ok(), listed.status().ToString());
    for (const ListedObject& object : listed->objects) ids.push_back(object.id);
    cursor = listed->next_cursor;
  } while (!cursor.empty());
  const double listed = WallSeconds();
  Require(ids.size() == objects, "objects are missing");
  const std::vector<std::string_view> keys(ids.begin(), ids.end());
  for (const StatResult& stat : store->BatchStat(keys, {})) Require(stat.found, "stat");
  fmt::print("{} objects: listed in pages of 100 in {:.1f} us each, stat in {:.1f} us each\n",
             objects, (listed - start) * 1e6 / static_cast<double>(objects),
             (WallSeconds() - listed) * 1e6 / static_cast<double>(objects));
}

void EvictWhileReading(const std::string& dir) {
  constexpr size_t kObjects = 10'000;
  const auto store = OpenStore(dir + "/evicted", "41MiB");
  const Pages small(4096);
  for (size_t i = 0; i < kObjects; ++i) PutPages(*store, KeyNumber(i), small);
  std::vector<double> gets[2];  // before, and while others are evicted
  std::atomic<int> phase = 0;
  std::thread reader([&] {
    const Pages target(4096);
    for (size_t i = kObjects - 1; phase < 2; i = i % 500 + kObjects - 500) {
      const std::string key = KeyNumber(i);
      const GetItem item{key, target.buffers()};
      const int now = phase;
      const double start = WallSeconds();
      const GetResult get = store->BatchGetIntoMultiBuffers({&item, 1}, {}).at(0);
      Require(get.outcome != GetOutcome::kFailed, get.status.ToString());
      if (now < 2) gets[now].push_back((WallSeconds() - start) * 1e6);
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const Pages large(38 * kMiB);
  phase = 1;
  const Cost cost = Measure([&] { PutPages(*store, "large", large); });
  phase = 2;
  reader.join();
  const auto p99 = [](std::vector<double>& values) {
    std::sort(values.begin(), values.end());
    return values[values.size() * 99 / 100];
  };
  fmt::print(
      "a put that evicts 9,700 objects: {:.2f} s, {:.2f} s of CPU with the gets; gets of others "
      "meanwhile: p50 {:.0f} us, "
      "p99 {:.0f} us (before: {:.0f}, {:.0f})\n",
      cost.wall_s, cost.cpu_s, Median(gets[1]), p99(gets[1]), Median(gets[0]), p99(gets[0]));
}

}  // namespace
}  // namespace embercache

int main(int argc, char** argv) {
  using namespace embercache;
  if (argc < 2 || argc > 3) Fail("usage: file_store_bench DIR [ROUNDS]");
  const std::string dir = fmt::format("{}/file_store_bench.{}", argv[1], getpid());
  const int rounds = argc == 3 ? std::atoi(argv[2]) : 9;
  fmt::print("{:<22} {:>8} {:>8} {:>8} {:>12} {:>12}\n", "", "store", "bare", "ratio", "store CPU",
             "bare CPU");
  fmt::print("{:<22} {:>8} {:>8} {:>8} {:>12} {:>12}\n", "", "GB/s", "GB/s", "", "s/GiB", "s/GiB");
  for (const size_t bytes : {kMiB, 8 * kMiB, 30 * kMiB}) CompareSize(dir, bytes, rounds);
  fmt::print("Puts should reach 85 % of the bare loop, gets 90 %.\n");
  for (const size_t objects : {1000, 10'000}) ListAndStat(dir, objects);
  EvictWhileReading(dir);
  std::filesystem::remove_all(dir);
  return 0;
}
