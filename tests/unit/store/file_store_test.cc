#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <thread>

#include "tests/unit/store/file_store_fixture.h"
#include "tests/unit/store/syscall_fault.h"

namespace embercache {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

constexpr size_t kMiB = 1 << 20;

class FileStoreTest : public FileStoreFixture {};

TEST_F(FileStoreTest, AnObjectIsAFileOfItsBytesUnderItsDigits) {
  const auto store = Open();
  const Bytes bytes = PayloadOf("a", 10'000);
  const std::string hex = "ab12" + std::string(60, '0');
  PutOne(*store, "emb_" + hex, bytes);
  std::ifstream file(dir() + "/ab/12/" + hex + ".emb", std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(file)), {});
  ASSERT_EQ(content.size(), bytes.size());
  EXPECT_EQ(std::memcmp(content.data(), bytes.data(), bytes.size()), 0);
}

TEST_F(FileStoreTest, ObjectsOutliveTheStore) {
  const Bytes bytes = PayloadOf("a", 10'000);
  PutOne(*Open(), KeyNumber(1), bytes);
  EXPECT_EQ(GetOne(*Open(), KeyNumber(1), bytes.size(), &got_).outcome, GetOutcome::kHit);
  EXPECT_TRUE(got_ == bytes);
}

// Aligned buffers, so that O_DIRECT is used where the file system has it.
TEST_F(FileStoreTest, LargeAlignedObjectsComeBackWhole) {
  const auto store = Open();
  const size_t size = 9 * kMiB + 4096;
  auto* const memory = static_cast<std::byte*>(
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const MutableBuffer pages(memory, size);
  const Bytes bytes = PayloadOf("a", size);
  std::copy(bytes.begin(), bytes.end(), pages.begin());
  const MutableBuffer parts[] = {pages.first(4096), pages.subspan(4096, 5 * kMiB),
                                 pages.subspan(4096 + 5 * kMiB)};
  const ConstBuffer sources[] = {parts[0], parts[1], parts[2]};
  const PutItem put{"k", sources, PutMode::kIfAbsent};
  EXPECT_EQ(store->BatchPutFromMultiBuffers({&put, 1}, {}).at(0).outcome, PutOutcome::kStored);
  for (int round = 0; round < 2; ++round) {
    std::fill(pages.begin(), pages.end(), std::byte{0});
    const GetItem get{"k", parts};
    EXPECT_EQ(store->BatchGetIntoMultiBuffers({&get, 1}, {}).at(0).outcome, GetOutcome::kHit);
    EXPECT_TRUE(std::equal(pages.begin(), pages.end(), bytes.begin()));
    // Unaligned, through the page cache, which the second round then finds filled.
    EXPECT_EQ(GetOne(*store, "k", size, &got_).outcome, GetOutcome::kHit);
    EXPECT_TRUE(got_ == bytes);
  }
  munmap(memory, size);
}

// Of sizes that are read at once, where the kernel can, among some that are not.
TEST_F(FileStoreTest, ABatchOfLargeObjectsComesBackWhole) {
  const auto store = Open();
  AlignedBatch batch(20);
  for (size_t i = 0; i < batch.size(); ++i) {
    EXPECT_EQ(PutOne(*store, batch.key(i), batch.Filled(i)).outcome, PutOutcome::kStored);
  }
  RemoveOne(*store, batch.key(3));
  const auto check = [&] {
    std::vector<uint64_t> told(batch.size());
    const std::function<void(size_t, uint64_t)> received = [&](size_t i, uint64_t bytes) {
      told.at(i) = bytes;
    };
    CallContext context;
    context.received = &received;
    const auto gets = store->BatchGetIntoMultiBuffers(batch.Items(), context);
    ASSERT_EQ(gets.size(), batch.size());
    for (size_t i = 0; i < gets.size(); ++i) {
      EXPECT_EQ(gets[i].outcome, i == 3 ? GetOutcome::kMiss : GetOutcome::kHit) << i;
      EXPECT_TRUE(i == 3 || batch.Holds(i)) << i;
      EXPECT_EQ(told[i], i == 3 ? 0 : batch.bytes(i)) << i;
    }
  };
  check();
  RunWithFault({.number = SYS_io_uring_setup, .error = EPERM}, check);
  RunWithFault({.number = SYS_io_uring_enter, .error = EIO}, check);
  check();
}

// Its ends lie in the page cache, and what is between them does not.
TEST_F(FileStoreTest, AnObjectThatIsCachedInPartComesBackWhole) {
  const auto store = Open();
  const size_t size = 3 * kMiB;
  auto* const memory = static_cast<std::byte*>(
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const MutableBuffer pages(memory, size);
  const Bytes bytes = PayloadOf("a", size);
  std::copy(bytes.begin(), bytes.end(), pages.begin());
  EXPECT_EQ(PutOne(*store, "k", pages).outcome, PutOutcome::kStored);
  const int fd = open(PathOf("k").c_str(), O_RDONLY);
  ASSERT_GE(fd, 0);
  posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);  // no read-ahead
  std::byte page[4096];
  for (const size_t offset : {size_t{0}, kMiB, size - sizeof(page)}) {
    EXPECT_EQ(pread(fd, page, sizeof(page), static_cast<off_t>(offset)), sizeof(page));
  }
  close(fd);
  std::fill(pages.begin(), pages.end(), std::byte{0});
  const GetItem get{"k", {&pages, 1}};
  EXPECT_EQ(store->BatchGetIntoMultiBuffers({&get, 1}, {}).at(0).outcome, GetOutcome::kHit);
  EXPECT_TRUE(std::equal(pages.begin(), pages.end(), bytes.begin()));
  munmap(memory, size);
}

TEST_F(FileStoreTest, AFolderThatCannotBeMadeIsAnErrorThatNamesIt) {
  WriteText(folder_.path() + "/file", "");
  for (const std::string& dir :
       {folder_.path() + "/file", folder_.path() + "/file/store", std::string("/proc/store")}) {
    dir_ = dir;
    const auto store = TryOpen();
    ASSERT_FALSE(store.ok()) << dir;
    EXPECT_THAT(store.status().message(), HasSubstr(dir));
  }
}

TEST_F(FileStoreTest, OptionsAreChecked) {
  StoreConfig config;
  EXPECT_THAT(CreateFileStore(config).status().message(), HasSubstr("needs the option 'dir'"));
  EXPECT_THAT(TryOpen({{"max_byte", 1}}).status().message(), HasSubstr("'max_byte'"));
  EXPECT_THAT(TryOpen({{"ttl", "10ms"}}).status().message(), HasSubstr("at least \"1s\""));
}

TEST_F(FileStoreTest, ForeignFilesAreLeftAlone) {
  const auto store = Open({{"max_bytes", "1MiB"}});
  PutOne(*store, KeyNumber(1), PayloadOf("a", 100));
  const std::string folder = std::filesystem::path(PathOf(KeyNumber(1))).parent_path();
  const std::string foreign[] = {dir() + "/README",    dir() + "/.embercache/tmp/notes.tmp",
                                 folder + "/half.tmp", folder + "/photo.emb",
                                 dir() + "/x.emb",     dir() + "/00"};
  for (const std::string& path : foreign) WriteText(path, "mine");
  for (unsigned i = 0; i < 20; ++i) PutOne(*store, KeyNumber(i), PayloadOf("a", 200'000));
  EXPECT_TRUE(Open({{"max_bytes", "4KiB"}}));
  for (const std::string& path : foreign) EXPECT_TRUE(std::filesystem::exists(path)) << path;
  const auto page = store->List("", 100, {});
  EXPECT_LE(page->objects.size(), 1U);
}

TEST_F(FileStoreTest, HalfWrittenFilesOfTheDeadAreRemovedAndThoseOfTheLivingStay) {
  Open();
  const std::string temps = dir() + "/.embercache/tmp/";
  const std::string dead = temps + "put-0123456789abcdef.tmp";
  const std::string living = temps + "put-fedcba9876543210.tmp";
  WriteText(dead, std::string(10'000, 'x'));
  WriteText(living, std::string(10'000, 'x'));
  const int owner = open(living.c_str(), O_RDWR);
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  ASSERT_EQ(fcntl(owner, F_OFD_SETLK, &lock), 0);
  const auto store = Open();
  EXPECT_FALSE(std::filesystem::exists(dead));
  EXPECT_TRUE(std::filesystem::exists(living));
  EXPECT_EQ(UsedBytes(*store), 12'288U);  // what is being written counts, in whole blocks
  close(owner);
  EXPECT_EQ(UsedBytes(*Open()), 0U);
}

TEST_F(FileStoreTest, AFolderThatIsRemovedIsMadeAgain) {
  const auto store = Open();
  const Bytes bytes = PayloadOf("a", 10'000);
  PutOne(*store, "k", bytes);
  std::filesystem::remove_all(dir());
  EXPECT_EQ(GetOne(*store, "k", bytes.size(), &got_).outcome, GetOutcome::kMiss);
  EXPECT_EQ(PutOne(*store, "k", bytes).outcome, PutOutcome::kStored);
  EXPECT_EQ(GetOne(*store, "k", bytes.size(), &got_).outcome, GetOutcome::kHit);
  EXPECT_EQ(UsedBytes(*store), 12'288U);
}

TEST_F(FileStoreTest, AFolderThatIsEmptiedIsFilledAgain) {
  const auto store = Open({{"max_bytes", "64KiB"}});
  const Bytes bytes = PayloadOf("a", 8192);
  for (unsigned i = 0; i < 4; ++i) PutOne(*store, KeyNumber(i), bytes);
  for (const auto& entry : std::filesystem::directory_iterator(dir())) {
    std::filesystem::remove_all(entry.path());
  }
  EXPECT_FALSE(StatOne(*store, KeyNumber(0)).found);
  for (unsigned i = 0; i < 20; ++i) {
    EXPECT_EQ(PutOne(*store, KeyNumber(i), bytes).outcome, PutOutcome::kStored);
    EXPECT_LE(ObjectBytes(), 64U * 1024);
  }
  EXPECT_EQ(UsedBytes(*store), ObjectBytes());
}

TEST_F(FileStoreTest, AFolderThatCannotBeUsedFailsCallsUntilItCan) {
  const auto store = Open();
  const Bytes bytes = PayloadOf("a", 10'000);
  PutOne(*store, "k", bytes);
  std::filesystem::rename(dir(), dir() + ".away");
  WriteText(dir(), "a file in its place");
  const GetResult get = GetOne(*store, "k", bytes.size(), &got_);
  EXPECT_EQ(get.outcome, GetOutcome::kFailed);
  EXPECT_TRUE(get.status.retryable());
  EXPECT_THAT(get.status.message(), HasSubstr(dir()));
  const PutResult put = PutOne(*store, "other", bytes);
  EXPECT_EQ(put.outcome, PutOutcome::kFailed);
  EXPECT_TRUE(put.status.retryable());
  EXPECT_TRUE(StatOne(*store, "k").status.retryable());
  EXPECT_TRUE(RemoveOne(*store, "k").status.retryable());
  EXPECT_EQ(store->Health().state, StoreState::kDown);
  EXPECT_FALSE(store->List("", 1, {}).ok());
  std::filesystem::remove(dir());
  std::filesystem::rename(dir() + ".away", dir());
  EXPECT_EQ(GetOne(*store, "k", bytes.size(), &got_).outcome, GetOutcome::kHit);
  EXPECT_EQ(PutOne(*store, "other", bytes).outcome, PutOutcome::kStored);
  EXPECT_EQ(store->Health().state, StoreState::kUp);
}

TEST_F(FileStoreTest, AFileThatWasCutIsOfTheWrongSize) {
  const auto store = Open();
  PutOne(*store, "k", PayloadOf("a", 10'000));
  std::filesystem::resize_file(PathOf("k"), 6000);
  const GetResult get = GetOne(*store, "k", 10'000, &got_);
  EXPECT_EQ(get.outcome, GetOutcome::kWrongSize);
  EXPECT_EQ(get.bytes, 6000U);
}

TEST_F(FileStoreTest, WhatIsNoFileUnderAnObjectsNameFailsAtOnce) {
  const auto store = Open();
  PutOne(*store, "k", PayloadOf("a", 10));
  std::filesystem::rename(PathOf("k"), dir() + "/elsewhere.emb");
  const auto expect_failure = [&] {
    EXPECT_EQ(GetOne(*store, "k", 10, &got_).outcome, GetOutcome::kFailed);
    EXPECT_FALSE(StatOne(*store, "k").found);
    std::filesystem::remove(PathOf("k"));
  };
  ASSERT_EQ(mkfifo(PathOf("k").c_str(), 0600), 0);
  expect_failure();
  std::filesystem::create_symlink(dir() + "/elsewhere.emb", PathOf("k"));
  expect_failure();
  std::filesystem::create_directory(PathOf("k"));
  expect_failure();
}

TEST_F(FileStoreTest, ObjectsExpireWithoutAPutOfTheirKey) {
  const auto store = Open({{"ttl", "100s"}});
  const Bytes bytes = PayloadOf("a", 10'000);
  for (unsigned i = 0; i < 2; ++i) PutOne(*store, KeyNumber(i), bytes);
  MakeOld(KeyNumber(0), seconds(90), seconds(0));
  MakeOld(KeyNumber(1), seconds(110), seconds(0));
  EXPECT_EQ(GetOne(*store, KeyNumber(0), bytes.size(), &got_).outcome, GetOutcome::kHit);
  EXPECT_EQ(GetOne(*store, KeyNumber(1), bytes.size(), &got_).outcome, GetOutcome::kMiss);
  EXPECT_FALSE(StatOne(*store, KeyNumber(1)).found);
  EXPECT_EQ(store->List("", 10, {})->objects.size(), 1U);
  EXPECT_EQ(PutOne(*store, KeyNumber(1), bytes).outcome, PutOutcome::kStored);
  EXPECT_EQ(GetOne(*store, KeyNumber(1), bytes.size(), &got_).outcome, GetOutcome::kHit);
  EXPECT_EQ(UsedBytes(*store), ObjectBytes() + 2 * 2288);  // 10,000 bytes in whole blocks
}

TEST_F(FileStoreTest, APutThatFindsItsObjectMakesItYoungWithoutANewVersion) {
  const auto store = Open({{"ttl", "100s"}});
  const Bytes bytes = PayloadOf("a", 10'000);
  PutOne(*store, KeyNumber(0), bytes);
  const auto version = StatOne(*store, KeyNumber(0)).version;
  MakeOld(KeyNumber(0), seconds(90), seconds(90));
  EXPECT_EQ(PutOne(*store, KeyNumber(0), bytes).outcome, PutOutcome::kAlreadyPresent);
  struct stat info = {};
  ASSERT_EQ(stat(PathOf(KeyNumber(0)).c_str(), &info), 0);
  EXPECT_GE(info.st_mtim.tv_sec, time(nullptr) - 10);
  EXPECT_EQ(StatOne(*store, KeyNumber(0)).version, version);
}

TEST_F(FileStoreTest, ExpiredObjectsAreRemovedWhenTheStoreOpens) {
  PutOne(*Open(), KeyNumber(0), PayloadOf("a", 10'000));
  MakeOld(KeyNumber(0), seconds(110), seconds(0));
  const auto store = Open({{"ttl", "100s"}});
  EXPECT_FALSE(std::filesystem::exists(PathOf(KeyNumber(0))));
  EXPECT_EQ(UsedBytes(*store), 0U);
}

TEST_F(FileStoreTest, AnIdThatListGivesCannotBePut) {
  const auto store = Open();
  PutOne(*store, "some key", PayloadOf("a", 10));
  const std::string id = store->List("", 10, {})->objects.at(0).id;
  const PutResult put = PutOne(*store, id, PayloadOf("b", 10));
  EXPECT_EQ(put.outcome, PutOutcome::kFailed);
  EXPECT_EQ(put.status.code(), StatusCode::kInvalid);
  EXPECT_EQ(GetOne(*store, "some key", 10, &got_).outcome, GetOutcome::kHit);
  EXPECT_EQ(got_, PayloadOf("a", 10));
}

}  // namespace
}  // namespace embercache
