// The file store on a disk that fails: each system call with each error, a full disk, a killed
// owner.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/uio.h>

#include <string>
#include <tuple>

#include "tests/support/address_sanitizer.h"
#include "tests/unit/store/file_store_fixture.h"
#include "tests/unit/store/private_tmpfs.h"
#include "tests/unit/store/syscall_fault.h"

namespace embercache {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr size_t kMiB = 1 << 20;

struct NamedFault {
  const char* name;
  SyscallFault fault;
  bool strikes_replacement = true;
};

void PrintTo(const NamedFault& fault, std::ostream* out) {
  *out << fault.name;
}

class FilePutFaultTest : public FileStoreFixture, public testing::WithParamInterface<NamedFault> {};

TEST_P(FilePutFaultTest, APutThatFailsLeavesNothingAndLaterOnesSucceed) {
  const auto store = Open();
  const Bytes old = PayloadOf("old", 5000);
  const Bytes bytes = PayloadOf("new", 2 * kMiB);
  PutOne(*store, KeyNumber(1), old);
  const uint64_t used = UsedBytes(*store);
  PutResult fresh;
  PutResult replacement;
  RunWithFault(GetParam().fault, [&] {
    fresh = PutOne(*store, KeyNumber(2), bytes);
    clock_.Advance(seconds(60));  // past the back-off, so that this one tries too
    replacement = PutOne(*store, KeyNumber(1), bytes, PutMode::kReplace);
  });
  const auto expect_failure = [&](const PutResult& put) {
    EXPECT_EQ(put.outcome, PutOutcome::kFailed);
    EXPECT_TRUE(put.status.retryable()) << put.status.ToString();
    EXPECT_THAT(put.status.message(), HasSubstr(dir()));
  };
  expect_failure(fresh);
  if (GetParam().strikes_replacement) {
    expect_failure(replacement);
    EXPECT_EQ(store->Health().state, StoreState::kDown);
  } else {
    EXPECT_EQ(replacement.outcome, PutOutcome::kStored);
    PutOne(*store, KeyNumber(1), old, PutMode::kReplace);
  }
  EXPECT_EQ(GetOne(*store, KeyNumber(2), bytes.size(), &got_).outcome, GetOutcome::kMiss);
  EXPECT_FALSE(StatOne(*store, KeyNumber(2)).found);
  // A full disk may have cost the old object its place; it is never half replaced.
  const bool evicted = !StatOne(*store, KeyNumber(1)).found;
  if (!evicted) {
    EXPECT_EQ(GetOne(*store, KeyNumber(1), old.size(), &got_).outcome, GetOutcome::kHit);
    EXPECT_TRUE(got_ == old);
  }
  const auto reopened = Open();  // counts what is there, and removes half-written files
  EXPECT_EQ(TempFiles(), 0U);
  EXPECT_EQ(UsedBytes(*reopened), evicted ? 0 : used);

  clock_.Advance(seconds(60));
  EXPECT_EQ(PutOne(*store, KeyNumber(2), bytes).outcome, PutOutcome::kStored);
  EXPECT_EQ(GetOne(*store, KeyNumber(2), bytes.size(), &got_).outcome, GetOutcome::kHit);
  EXPECT_TRUE(got_ == bytes);
  EXPECT_EQ(store->Health().state, StoreState::kUp);
}

SyscallFault Fails(long number, int error) {
  return {number, error, std::nullopt, 0, true};
}

// Fails calls whose argument is, or with `exact` false is at least, the value.
SyscallFault FailsWhere(long number, int error, unsigned argument, uint32_t value,
                        bool exact = true) {
  return {number, error, argument, value, exact};
}

INSTANTIATE_TEST_SUITE_P(
    Faults, FilePutFaultTest,
    testing::Values(NamedFault{"WriteEio", Fails(SYS_pwritev, EIO)},
                    NamedFault{"WriteEnospc", Fails(SYS_pwritev, ENOSPC)},
                    NamedFault{"WriteEdquot", Fails(SYS_pwritev, EDQUOT)},
                    NamedFault{"WriteErofs", Fails(SYS_pwritev, EROFS)},
                    NamedFault{"WriteEinval", Fails(SYS_pwritev, EINVAL)},
                    NamedFault{"TempOpenEmfile", FailsWhere(SYS_openat, EMFILE, 2,
                                                            O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC)},
                    NamedFault{"TempOpenEnospc", FailsWhere(SYS_openat, ENOSPC, 2,
                                                            O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC)},
                    NamedFault{"TempOpenErofs", FailsWhere(SYS_openat, EROFS, 2,
                                                           O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC)},
                    NamedFault{"TempOpenEacces", FailsWhere(SYS_openat, EACCES, 2,
                                                            O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC)},
                    NamedFault{"SizeEio", Fails(SYS_ftruncate, EIO)},
                    NamedFault{"TimesEio", Fails(SYS_utimensat, EIO)},
                    NamedFault{"LockEnolck", FailsWhere(SYS_fcntl, ENOLCK, 1, F_OFD_SETLK)},
                    NamedFault{"FlushEdquot", Fails(SYS_dup, EDQUOT)},
                    NamedFault{"FolderEnospc", Fails(SYS_mkdirat, ENOSPC), false},
                    NamedFault{"RenameEio", Fails(SYS_renameat2, EIO), false}),
    [](const auto& test) { return std::string(test.param.name); });

class FileFaultTest : public FileStoreFixture {};

// LMCache#4991: a write that failed half way stayed visible.
TEST_F(FileFaultTest, AWriteThatFailsHalfWayRetractsTheKey) {
  const auto store = Open();
  const Bytes bytes = PayloadOf("k", 10 * kMiB);
  PutResult put;
  // The second chunk of 8 MiB.
  RunWithFault(FailsWhere(SYS_pwritev, EIO, 3, 8 * kMiB, /*exact=*/false),
               [&] { put = PutOne(*store, "k", bytes); });
  EXPECT_EQ(put.outcome, PutOutcome::kFailed);
  EXPECT_EQ(GetOne(*store, "k", bytes.size(), &got_).outcome, GetOutcome::kMiss);
  EXPECT_FALSE(std::filesystem::exists(PathOf("k")));
  EXPECT_EQ(TempFiles(), 0U);
  clock_.Advance(seconds(1));
  EXPECT_EQ(PutOne(*store, "k", bytes).outcome, PutOutcome::kStored);
  EXPECT_EQ(GetOne(*store, "k", bytes.size(), &got_).outcome, GetOutcome::kHit);
  EXPECT_TRUE(got_ == bytes);
}

TEST_F(FileFaultTest, WithFsyncAnObjectThatDidNotReachTheDiskIsNotStored) {
  const auto store = Open({{"fsync", true}});
  const Bytes bytes = PayloadOf("k", kMiB);
  PutResult put;
  RunWithFault(Fails(SYS_fdatasync, EIO), [&] { put = PutOne(*store, "k", bytes); });
  EXPECT_EQ(put.outcome, PutOutcome::kFailed);
  EXPECT_FALSE(StatOne(*store, "k").found);
  clock_.Advance(seconds(1));
  EXPECT_EQ(PutOne(*store, "k", bytes).outcome, PutOutcome::kStored);
}

TEST_F(FileFaultTest, AReplacementThatFailsLeavesWhatWasThere) {
  const auto store = Open();
  const Bytes old = PayloadOf("old", 5000);
  PutOne(*store, "k", old);
  PutResult put;
  RunWithFault(Fails(SYS_renameat, EIO),
               [&] { put = PutOne(*store, "k", PayloadOf("new", 5000), PutMode::kReplace); });
  EXPECT_EQ(put.outcome, PutOutcome::kFailed);
  EXPECT_EQ(GetOne(*store, "k", old.size(), &got_).outcome, GetOutcome::kHit);
  EXPECT_TRUE(got_ == old);
  EXPECT_EQ(TempFiles(), 0U);
}

// NFS has no RENAME_NOREPLACE.
TEST_F(FileFaultTest, WithoutRenameNoreplaceALinkPublishes) {
  const auto store = Open();
  const Bytes bytes = PayloadOf("k", kMiB);
  RunWithFault(FailsWhere(SYS_renameat2, EINVAL, 4, RENAME_NOREPLACE), [&] {
    EXPECT_EQ(PutOne(*store, "k", bytes).outcome, PutOutcome::kStored);
    EXPECT_EQ(PutOne(*store, "k", bytes).outcome, PutOutcome::kAlreadyPresent);
    EXPECT_EQ(PutOne(*store, "k", bytes, PutMode::kReplace).outcome, PutOutcome::kStored);
  });
  EXPECT_EQ(GetOne(*store, "k", bytes.size(), &got_).outcome, GetOutcome::kHit);
  EXPECT_EQ(TempFiles(), 0U);
  EXPECT_EQ(UsedBytes(*store), kMiB);
}

TEST_F(FileFaultTest, WithoutDirectIoObjectsGoThroughTheCache) {
  const auto store = Open();
  alignas(4096) static std::byte page[kMiB];
  const Bytes bytes = PayloadOf("k", kMiB);
  std::copy(bytes.begin(), bytes.end(), page);
  const MutableBuffer buffer(page);
  const auto round_trip_get = [&](const std::string& key) {
    const GetItem get{key, {&buffer, 1}};
    std::fill(buffer.begin(), buffer.end(), std::byte{0});
    EXPECT_EQ(store->BatchGetIntoMultiBuffers({&get, 1}, {}).at(0).outcome, GetOutcome::kHit);
    EXPECT_TRUE(std::equal(buffer.begin(), buffer.end(), bytes.begin()));
  };
  const auto round_trip = [&](const std::string& key) {
    EXPECT_EQ(PutOne(*store, key, buffer).outcome, PutOutcome::kStored);
    round_trip_get(key);
  };
  RunWithFault(FailsWhere(SYS_fcntl, EINVAL, 1, F_SETFL), [&] { round_trip("no O_DIRECT"); });
  RunWithFault(Fails(SYS_fallocate, EOPNOTSUPP), [&] { round_trip("no fallocate"); });
  RunWithFault(FailsWhere(SYS_preadv2, EOPNOTSUPP, 5, RWF_NOWAIT), [&] {
    round_trip("written");
    std::ifstream(PathOf("written"), std::ios::binary).ignore(kMiB);  // into the page cache
    round_trip_get("written");
  });
#if !defined(EMBERCACHE_ASAN)  // which maps memory itself
  RunWithFault(Fails(SYS_mmap, ENOMEM), [&] { round_trip("cache unknown"); });
#endif
}

TEST_F(FileFaultTest, AGetThatFailsIsNoMissAndMayBeTriedAgain) {
  const auto store = Open();
  const Bytes bytes = PayloadOf("k", kMiB);
  PutOne(*store, "k", bytes);
  for (const SyscallFault& fault :
       {Fails(SYS_preadv2, EIO),
        FailsWhere(SYS_openat, EMFILE, 2, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)}) {
    GetResult get;
    RunWithFault(fault, [&] { get = GetOne(*store, "k", bytes.size(), &got_); });
    EXPECT_EQ(get.outcome, GetOutcome::kFailed);
    EXPECT_TRUE(get.status.retryable()) << get.status.ToString();
  }
  EXPECT_EQ(GetOne(*store, "k", bytes.size(), &got_).outcome, GetOutcome::kHit);
}

TEST_F(FileFaultTest, AfterAFailurePutsAnswerAtOnceUntilTheBackOffIsOver) {
  const auto store = Open();
  PutOne(*store, KeyNumber(0), PayloadOf("k", 10));
  const auto put = [&](unsigned number) {
    return PutOne(*store, KeyNumber(number), PayloadOf("k", 10)).outcome;
  };
  RunWithFault(Fails(SYS_pwritev, EIO), [&] { put(1); });
  EXPECT_EQ(put(2), PutOutcome::kFailed);  // the disk works again, but is not asked
  EXPECT_EQ(put(0), PutOutcome::kAlreadyPresent);
  EXPECT_EQ(GetOne(*store, KeyNumber(0), 10, &got_).outcome, GetOutcome::kHit);
  clock_.Advance(milliseconds(100));
  EXPECT_EQ(put(2), PutOutcome::kStored);
  // After many failures in a row it still tries within 10 s.
  RunWithFault(Fails(SYS_pwritev, EIO), [&] {
    for (unsigned i = 10; i < 30; ++i) {
      put(i);
      clock_.Advance(seconds(60));
    }
    put(31);
  });
  clock_.Advance(milliseconds(9900));
  EXPECT_EQ(put(32), PutOutcome::kFailed);
  clock_.Advance(milliseconds(100));
  EXPECT_EQ(put(32), PutOutcome::kStored);
}

class FullDiskTest : public FileStoreFixture {
 protected:
  void SetUp() override {
    ASSERT_EQ(disk_.error(), "");
    dir_ = disk_.path() + "/store";
  }
  PutResult Put(EmbeddingStore& store, unsigned number) {
    return PutOne(store, KeyNumber(number), PayloadOf(KeyNumber(number), kMiB));
  }
  PrivateTmpfs disk_{"size=32m"};
};

// DingoCache#83: eviction only ever watched the configured number.
TEST_F(FullDiskTest, AFullDiskMakesRoomThoughTheBudgetIsLarger) {
  const auto store = Open({{"max_bytes", "1GiB"}});
  for (unsigned i = 0; i < 100; ++i) {
    const PutResult put = Put(*store, i);
    ASSERT_EQ(put.outcome, PutOutcome::kStored) << i << ": " << put.status.ToString();
  }
  EXPECT_EQ(GetOne(*store, KeyNumber(99), kMiB, &got_).outcome, GetOutcome::kHit);
  EXPECT_EQ(got_, PayloadOf(KeyNumber(99), kMiB));
  EXPECT_GE(ObjectBytes(), 25 * kMiB);
  EXPECT_EQ(UsedBytes(*store), ObjectBytes());
  EXPECT_EQ(store->Health().state, StoreState::kUp);
}

TEST_F(FullDiskTest, ADiskThatOthersFilledFailsPutsOnceEachAndResumes) {
  const auto store = Open({{"max_bytes", "1GiB"}});
  const std::string foreign = disk_.path() + "/foreign";
  for (std::ofstream file(foreign); file.good();) file << std::string(64 * 1024, 'x');
  const PutResult put = Put(*store, 1);
  EXPECT_EQ(put.outcome, PutOutcome::kFailed);
  EXPECT_EQ(put.status.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(put.status.retryable());
  EXPECT_EQ(store->Health().state, StoreState::kDown);
  EXPECT_EQ(TempFiles(), 0U);
  std::filesystem::remove(foreign);
  clock_.Advance(seconds(10));
  EXPECT_EQ(Put(*store, 1).outcome, PutOutcome::kStored);
  EXPECT_EQ(store->Health().state, StoreState::kUp);
}

// Without free inodes there is no room for a name either.
TEST_F(FileFaultTest, AFullInodeTableMakesRoomToo) {
  const PrivateTmpfs disk("size=32m,nr_inodes=64");
  ASSERT_EQ(disk.error(), "");
  dir_ = disk.path() + "/store";
  const auto store = Open();
  for (unsigned i = 0; i < 40; ++i) {
    const PutResult put = PutOne(*store, "emb_0000" + KeyNumber(i).substr(8), PayloadOf("k", 100));
    ASSERT_EQ(put.outcome, PutOutcome::kStored) << i << ": " << put.status.ToString();
  }
  for (unsigned i = 100; i < 140; ++i) {
    const PutResult put = PutOne(*store, "emb_0000" + KeyNumber(i).substr(8), PayloadOf("k", 100));
    ASSERT_EQ(put.outcome, PutOutcome::kStored) << i << ": " << put.status.ToString();
  }
}

}  // namespace
}  // namespace embercache
