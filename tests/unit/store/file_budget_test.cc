// The byte budget of the file store: across restarts, processes and limits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "src/store/file/directory.h"
#include "src/store/file/object_tree.h"
#include "tests/unit/store/file_store_fixture.h"

namespace embercache {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

// The size of most objects here.
constexpr size_t kUnit = 64 * 1024;

class FileBudgetTest : public FileStoreFixture {
 protected:
  PutOutcome Put(EmbeddingStore& store, unsigned number, size_t bytes = kUnit) {
    return PutOne(store, KeyNumber(number), PayloadOf(KeyNumber(number), bytes)).outcome;
  }
  bool Has(EmbeddingStore& store, unsigned number) {
    return StatOne(store, KeyNumber(number)).found;
  }
};

TEST_F(FileBudgetTest, WhatIsThereAfterARestartCountsAndTheOldestMakeRoom) {
  auto store = Open({{"max_bytes", 64 * kUnit}});
  for (unsigned i = 0; i < 60; ++i) ASSERT_EQ(Put(*store, i), PutOutcome::kStored);
  // Used long ago, the higher numbers longer ago; number 59 was just used again.
  for (unsigned i = 0; i < 60; ++i) MakeOld(KeyNumber(i), seconds(1000), seconds(100 + i));
  EXPECT_EQ(GetOne(*store, KeyNumber(59), kUnit, &got_).outcome, GetOutcome::kHit);
  store.reset();

  store = Open({{"max_bytes", 64 * kUnit}});
  EXPECT_EQ(UsedBytes(*store), 60 * kUnit);
  for (unsigned i = 0; i < 60; ++i) EXPECT_TRUE(Has(*store, i));
  for (unsigned i = 100; i < 130; ++i) {
    ASSERT_EQ(Put(*store, i), PutOutcome::kStored);
    ASSERT_LE(ObjectBytes(), 64 * kUnit);
  }
  EXPECT_EQ(UsedBytes(*store), 64 * kUnit);
  EXPECT_EQ(ObjectBytes(), 64 * kUnit);
  for (unsigned i = 0; i < 33; ++i) EXPECT_TRUE(Has(*store, i)) << i;
  for (unsigned i = 33; i < 59; ++i) EXPECT_FALSE(Has(*store, i)) << i;
  EXPECT_TRUE(Has(*store, 59));
}

TEST_F(FileBudgetTest, ALimitThatShrankIsKeptBeforeTheStoreServes) {
  auto store = Open({{"max_bytes", 64 * kUnit}});
  for (unsigned i = 0; i < 40; ++i) ASSERT_EQ(Put(*store, i), PutOutcome::kStored);
  for (unsigned i = 0; i < 40; ++i) MakeOld(KeyNumber(i), seconds(1000), seconds(100 + i));
  store = Open({{"max_bytes", 16 * kUnit}});
  EXPECT_EQ(ObjectBytes(), 16 * kUnit);
  for (unsigned i = 0; i < 16; ++i) EXPECT_TRUE(Has(*store, i)) << i;
}

TEST_F(FileBudgetTest, StoresOnOneFolderShareTheBudget) {
  const auto a = Open({{"max_bytes", 8 * kUnit}});
  const auto b = Open({{"max_bytes", 8 * kUnit}});
  for (unsigned i = 0; i < 40; ++i) {
    ASSERT_EQ(Put(i % 2 == 0 ? *a : *b, i), PutOutcome::kStored);
    ASSERT_LE(ObjectBytes(), 8 * kUnit);
  }
  EXPECT_EQ(ObjectBytes(), 8 * kUnit);
  EXPECT_EQ(UsedBytes(*a), 8 * kUnit);
  EXPECT_EQ(UsedBytes(*b), 8 * kUnit);
}

TEST_F(FileBudgetTest, AnObjectThatCanNeverFitIsRefusedAndEvictsNothing) {
  const auto store = Open({{"max_bytes", 2 * kUnit}});
  Put(*store, 1);
  const PutResult put = PutOne(*store, "large", PayloadOf("large", 2 * kUnit + 1));
  EXPECT_EQ(put.outcome, PutOutcome::kFailed);
  EXPECT_EQ(put.status.ToString(),
            "INVALID: an object of 128.0 KiB is larger than max_bytes, 128.0 KiB");
  EXPECT_TRUE(Has(*store, 1));
  EXPECT_EQ(Put(*store, 2), PutOutcome::kStored);
  EXPECT_EQ(PutOne(*store, "fits", PayloadOf("fits", 2 * kUnit)).outcome, PutOutcome::kStored);
  EXPECT_EQ(ObjectBytes(), 2 * kUnit);
}

TEST_F(FileBudgetTest, ReplacementsAndRemovalsAreCounted) {
  const auto store = Open();
  const auto replace = [&](size_t bytes) {
    PutOne(*store, "k", PayloadOf("k", bytes), PutMode::kReplace);
  };
  for (const size_t bytes : {10'000U, 5'000'000U, 0U, 4096U, 4097U}) {
    replace(bytes);
    EXPECT_EQ(UsedBytes(*store), bytes == 0 ? 4096 : (bytes + 4095) / 4096 * 4096);
  }
  RemoveOne(*store, "k");
  EXPECT_EQ(UsedBytes(*store), 0U);
}

TEST_F(FileBudgetTest, APutOfWhatIsThereCountsNothing) {
  const auto store = Open();
  Put(*store, 1);
  EXPECT_EQ(Put(*store, 1), PutOutcome::kAlreadyPresent);
  EXPECT_EQ(UsedBytes(*store), kUnit);
}

TEST_F(FileBudgetTest, ALedgerThatIsDamagedOrGoneIsCountedAnew) {
  const auto store = Open({{"max_bytes", 8 * kUnit}});
  for (unsigned i = 0; i < 5; ++i) Put(*store, i);
  const std::string ledger = dir() + "/.embercache/ledger";
  WriteText(ledger, std::string(5000, 'x'));
  EXPECT_EQ(UsedBytes(*Open({{"max_bytes", 8 * kUnit}})), 5 * kUnit);
  std::filesystem::remove(ledger);
  for (unsigned i = 10; i < 20; ++i) {
    ASSERT_EQ(Put(*store, i), PutOutcome::kStored);
    ASSERT_LE(ObjectBytes(), 8 * kUnit);
  }
  EXPECT_EQ(UsedBytes(*store), 8 * kUnit);
}

TEST_F(FileBudgetTest, FilesRemovedByHandFreeTheirBytesOnceThereIsNoRoom) {
  const auto store = Open({{"max_bytes", 8 * kUnit}});
  for (unsigned i = 0; i < 8; ++i) Put(*store, i);
  for (unsigned i = 0; i < 7; ++i) std::filesystem::remove(PathOf(KeyNumber(i)));
  EXPECT_EQ(Put(*store, 8), PutOutcome::kStored);
  EXPECT_TRUE(Has(*store, 7));
  EXPECT_EQ(UsedBytes(*store), 2 * kUnit);
}

// Another process that stops while it holds the lock must not stop this one for ever.
TEST_F(FileBudgetTest, ALockThatIsHeldElsewhereEndsPutsAtTheirDeadlineAndStopsNoGet) {
  const auto store = Open();
  Put(*store, 1);
  const int other = open((dir() + "/.embercache/ledger").c_str(), O_RDWR);
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  ASSERT_EQ(fcntl(other, F_OFD_SETLK, &lock), 0);
  CallContext context;
  context.deadline = SteadyClock().Now() + milliseconds(20);
  const Bytes bytes = PayloadOf("a", 100);
  const PutResult put = PutOne(*store, "k", bytes, PutMode::kIfAbsent, context);
  EXPECT_EQ(put.outcome, PutOutcome::kFailed);
  EXPECT_EQ(put.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(GetOne(*store, KeyNumber(1), kUnit, &got_).outcome, GetOutcome::kHit);
  close(other);
  EXPECT_EQ(PutOne(*store, "k", bytes).outcome, PutOutcome::kStored);
}

// Mooncake#974: a put that never ended kept its key for ever.
TEST_F(FileBudgetTest, AWriterThatHangsDoesNotKeepItsKey) {
  const auto store = Open();
  ObjectTree tree(*OpenOrMakeFolder(dir()), {.max_bytes = 1 << 30}, &clock_);
  {
    auto hanging = tree.Begin(5000, {});
    ASSERT_TRUE(hanging.ok()) << hanging.status().ToString();
    EXPECT_FALSE(Has(*store, 1));
    EXPECT_EQ(Put(*store, 1), PutOutcome::kStored);
    EXPECT_EQ(UsedBytes(*store), kUnit + 8192);
    const Status late =
        tree.Commit(std::move(*hanging), ObjectPath(KeyNumber(1)), PutMode::kIfAbsent, {});
    EXPECT_EQ(late.code(), StatusCode::kAlreadyExists);
  }
  EXPECT_EQ(GetOne(*store, KeyNumber(1), kUnit, &got_).outcome, GetOutcome::kHit);
  EXPECT_EQ(UsedBytes(*store), kUnit);
  EXPECT_EQ(TempFiles(), 0U);
}

TEST_F(FileBudgetTest, ManyObjectsAreEvictedWhileGetsGoOn) {
  const auto store = Open({{"max_bytes", "2MiB"}});
  for (unsigned i = 0; i < 400; ++i) ASSERT_EQ(Put(*store, i, 4096), PutOutcome::kStored);
  std::atomic<bool> stop = false;
  std::atomic<int> hits = 0;
  std::thread reader([&] {
    Bytes got;
    while (!stop) {
      for (unsigned i = 0; i < 400; i += 20) {
        const GetResult get = GetOne(*store, KeyNumber(i), 4096, &got);
        ASSERT_NE(get.outcome, GetOutcome::kFailed) << get.status.ToString();
        if (get.outcome != GetOutcome::kHit) continue;
        ASSERT_EQ(got, PayloadOf(KeyNumber(i), 4096));
        ++hits;
      }
    }
  });
  while (hits < 10) std::this_thread::yield();
  EXPECT_EQ(PutOne(*store, "large", PayloadOf("large", 1 << 20)).outcome, PutOutcome::kStored);
  stop = true;
  reader.join();
  EXPECT_LE(ObjectBytes(), 2U << 20);
  EXPECT_EQ(UsedBytes(*store), ObjectBytes());
}

}  // namespace
}  // namespace embercache
