#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "embercache/clock.h"
#include "embercache/digest.h"
#include "src/store/file/file_store.h"
#include "src/store/file/object_name.h"
#include "tests/conformance/payload.h"
#include "tests/conformance/temp_folder.h"

namespace embercache {

class ManualClock final : public Clock {
 public:
  TimePoint Now() const override { return TimePoint(Duration(now_ns_.load())); }
  void Advance(Duration time) { now_ns_ += time.count(); }

 private:
  std::atomic<int64_t> now_ns_ = SteadyClock().Now().time_since_epoch().count();
};

// A key as EmberCache makes them, which differs in the first digits from those of other numbers.
inline std::string KeyNumber(unsigned number) {
  return "emb_" + Sha256Of(std::to_string(number)).ToHex();
}

// Objects of 512 KiB to 12 MiB, and pages for them as O_DIRECT wants them.
class AlignedBatch {
 public:
  explicit AlignedBatch(size_t objects) {
    for (size_t i = 0; i < objects; ++i) {
      const size_t size = i % 7 == 6 ? size_t{12} << 20 : (i % 3 + 1) * (size_t{256} << 10);
      pages_.emplace_back(size + kPage);
      void* aligned = pages_.back().data();
      size_t space = pages_.back().size();
      buffers_.emplace_back(static_cast<std::byte*>(std::align(kPage, size, aligned, space)), size);
      keys_.push_back(KeyNumber(static_cast<unsigned>(i)));
    }
  }

  size_t size() const { return keys_.size(); }
  const std::string& key(size_t i) const { return keys_[i]; }
  uint64_t bytes(size_t i) const { return buffers_[i].size(); }
  Bytes Expected(size_t i) const { return PayloadOf(keys_[i], bytes(i)); }
  // In its pages, so that a put goes around the page cache.
  ConstBuffer Filled(size_t i) {
    std::ranges::copy(Expected(i), buffers_[i].begin());
    return buffers_[i];
  }
  bool Holds(size_t i) const { return std::ranges::equal(buffers_[i], Expected(i)); }
  // Gets into the pages, cleared.
  std::vector<GetItem> Items() {
    std::vector<GetItem> items;
    for (size_t i = 0; i < size(); ++i) {
      std::ranges::fill(buffers_[i], std::byte{0});
      items.push_back({keys_[i], {&buffers_[i], 1}});
    }
    return items;
  }

 private:
  static constexpr size_t kPage = 4096;

  std::deque<Bytes> pages_;
  std::vector<MutableBuffer> buffers_;
  std::vector<std::string> keys_;
};

// Opens file stores over one folder, and looks at the folder behind their backs.
class FileStoreFixture : public testing::Test {
 protected:
  Result<std::unique_ptr<EmbeddingStore>> TryOpen(nlohmann::json options = {}) {
    options["dir"] = dir();
    StoreConfig config;
    config.json = options.dump();
    config.clock = &clock_;
    return CreateFileStore(config);
  }
  std::unique_ptr<EmbeddingStore> Open(nlohmann::json options = {}) {
    auto store = TryOpen(std::move(options));
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    return std::move(*store);
  }

  const std::string& dir() const { return dir_; }
  std::string PathOf(std::string_view key) const { return dir_ + "/" + ObjectPath(key); }

  // The bytes of all objects' files.
  uint64_t ObjectBytes() const {
    uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_)) {
      if (entry.path().extension() == ".emb") bytes += entry.file_size();
    }
    return bytes;
  }
  size_t TempFiles() const {
    size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(dir_ + "/.embercache/tmp")) {
      files += entry.path().extension() == ".tmp" ? 1 : 0;
    }
    return files;
  }
  static uint64_t UsedBytes(const EmbeddingStore& store) {
    return nlohmann::json::parse(store.DescribeJson()).at("bytes");
  }

  // Sets the file's times, as if it had been put and last used that long ago.
  void MakeOld(std::string_view key, std::chrono::seconds put, std::chrono::seconds used) const {
    struct stat info = {};
    ASSERT_EQ(stat(PathOf(key).c_str(), &info), 0);
    timespec now = {};
    clock_gettime(CLOCK_REALTIME, &now);
    const timespec times[2] = {{now.tv_sec - used.count(), 0},
                               {now.tv_sec - put.count(), info.st_mtim.tv_nsec}};
    ASSERT_EQ(utimensat(AT_FDCWD, PathOf(key).c_str(), times, 0), 0);
  }

  static void WriteText(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }

  TempFolder folder_;
  std::string dir_ = folder_.path() + "/store";
  ManualClock clock_;
  Bytes got_;
};

}  // namespace embercache
