// Several processes on one folder, and processes killed at any moment.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/store/file_store_fixture.h"
#include "tests/unit/store/self_describing.h"

namespace embercache {
namespace {

// A file_store_worker that has begun.
class Worker {
 public:
  Worker(const std::string& dir, const std::string& options, uint64_t seed, uint64_t rounds) {
    int pipe_fds[2] = {-1, -1};
    EXPECT_EQ(pipe2(pipe_fds, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
    std::string arguments[] = {EMBERCACHE_WORKER, dir, options, std::to_string(seed),
                               std::to_string(rounds)};
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, EMBERCACHE_WORKER, &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(pipe_fds[1]);
    output_ = fdopen(pipe_fds[0], "r");
    EXPECT_EQ(ReadLine(), "begun\n");
  }
  ~Worker() { fclose(output_); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void Signal(int signal) { EXPECT_EQ(kill(pid_, signal), 0); }
  int Wait() {
    int status = -1;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    return status;
  }
  void Kill() {
    Signal(SIGKILL);
    const int status = Wait();
    EXPECT_TRUE(WIFSIGNALED(status)) << ReadLine();
  }
  std::string ReadLine() {
    char line[512] = "";
    return fgets(line, sizeof line, output_) != nullptr ? line : "";
  }

 private:
  pid_t pid_ = -1;
  FILE* output_ = nullptr;
};

class FileProcessesTest : public FileStoreFixture {
 protected:
  static size_t OpenDescriptors() {
    const std::filesystem::directory_iterator open("/proc/self/fd");
    return static_cast<size_t>(std::distance(begin(open), end(open)));
  }
  // All files that are no objects, by their paths in the folder.
  std::vector<std::string> ForeignFiles() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir())) {
      if (!entry.is_directory() && entry.path().extension() != ".emb") {
        files.push_back(std::filesystem::relative(entry.path(), dir()));
      }
    }
    return files;
  }
  // Every object of the store is whole, and the budget is what is there.
  void ExpectWhole(EmbeddingStore& store) {
    const auto page = store.List("", 1000, {});
    ASSERT_TRUE(page.ok()) << page.status().ToString();
    uint64_t charge = 0;
    for (const ListedObject& object : page->objects) {
      EXPECT_EQ(GetOne(store, object.id, object.bytes, &got_).outcome, GetOutcome::kHit);
      EXPECT_TRUE(IsWhole(object.id, got_)) << object.id;
      charge += (object.bytes + 4095) / 4096 * 4096;
    }
    EXPECT_EQ(UsedBytes(store), charge);
    EXPECT_EQ(TempFiles(), 0U);
  }
};

TEST_F(FileProcessesTest, AKillAtAnyMomentLeavesWholeObjectsAndNothingElse) {
  std::mt19937_64 random(1);
  for (uint64_t kill = 0; kill < 60; ++kill) {
    Worker worker(dir(), R"({"max_bytes":"4MiB"})", kill, 0);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    worker.Kill();
    if (kill % 4 == 0) ExpectWhole(*Open({{"max_bytes", "4MiB"}}));
  }
  ExpectWhole(*Open({{"max_bytes", "4MiB"}}));
}

TEST_F(FileProcessesTest, SeveralWritersThatAreKilledLeaveWholeObjectsARightLedgerAndNoOtherFile) {
  const std::string options = R"({"max_bytes":"4MiB"})";
  std::mt19937_64 random(3);
  const size_t descriptors = OpenDescriptors();
  uint64_t seed = 2000;
  for (int round = 0; round < 12; ++round) {
    std::vector<std::unique_ptr<Worker>> workers;
    for (int i = 0; i < 4; ++i) {
      workers.push_back(std::make_unique<Worker>(dir(), options, ++seed, 0));
    }
    std::shuffle(workers.begin(), workers.end(), random);
    for (const auto& worker : workers) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 10'000));
      worker->Kill();
    }
    EXPECT_LE(ObjectBytes(), 4U << 20);
    const auto store = Open({{"max_bytes", "4MiB"}});
    ExpectWhole(*store);
    EXPECT_THAT(ForeignFiles(), testing::ElementsAre(".embercache/ledger"));
    // The ledger is right for what comes, too.
    for (int i = 0; i < 30; ++i) EXPECT_EQ(DisturbStore(*store, random), "");
    ExpectWhole(*store);
  }
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

TEST_F(FileProcessesTest, WhatTheDeadLeftIsSweptByTheLivingWithoutARestart) {
  const auto store = Open({{"max_bytes", "4MiB"}});
  std::mt19937_64 random(4);
  // Until one dies with an object half written.
  for (uint64_t seed = 3000; TempFiles() == 0; ++seed) {
    Worker worker(dir(), R"({"max_bytes":"4MiB"})", seed, 0);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 5'000));
    worker.Kill();
  }
  clock_.Advance(std::chrono::minutes(2));
  const std::string key = KeyNumber(1);
  EXPECT_EQ(PutOne(*store, key, SelfDescribing(key, 1, 100)).outcome, PutOutcome::kStored);
  EXPECT_EQ(TempFiles(), 0U);
}

// One process keeps running, so that it does not count anew at a start.
TEST_F(FileProcessesTest, TheBudgetOfTheLivingIsKeptThoughOthersAreKilled) {
  const auto store = Open({{"max_bytes", "4MiB"}});
  std::mt19937_64 random(2);
  for (uint64_t kill = 0; kill < 20; ++kill) {
    Worker worker(dir(), R"({"max_bytes":"4MiB"})", 1000 + kill, 0);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(DisturbStore(*store, random), "");
    worker.Kill();
    EXPECT_LE(ObjectBytes(), 4U << 20);
  }
  ExpectWhole(*Open({{"max_bytes", "4MiB"}}));
}

TEST_F(FileProcessesTest, ProcessesOnOneFolderReadOnlyWholeObjectsAndShareTheBudget) {
  std::vector<std::unique_ptr<Worker>> workers;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    workers.push_back(std::make_unique<Worker>(dir(), R"({"max_bytes":"3MiB"})", seed, 300));
  }
  const auto store = Open({{"max_bytes", "3MiB"}});
  std::mt19937_64 random(99);
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(DisturbStore(*store, random), "");
    EXPECT_LE(UsedBytes(*store), 3U << 20);
  }
  for (const auto& worker : workers) EXPECT_EQ(worker->Wait(), 0) << worker->ReadLine();
  ExpectWhole(*store);
}

// A process that is stopped, not dead, holds up puts for no longer than their deadline.
TEST_F(FileProcessesTest, AStoppedProcessStopsNoOther) {
  Worker worker(dir(), "{}", 5, 0);
  const auto store = Open();
  for (int i = 0; i < 20; ++i) {
    worker.Signal(SIGSTOP);
    CallContext context;
    context.deadline = SteadyClock().Now() + std::chrono::milliseconds(100);
    const Bytes bytes = SelfDescribing(KeyNumber(7), 1, 10'000);
    const PutResult put = PutOne(*store, KeyNumber(7), bytes, PutMode::kReplace, context);
    EXPECT_TRUE(put.outcome == PutOutcome::kStored ||
                put.status.code() == StatusCode::kDeadlineExceeded)
        << put.status.ToString();
    worker.Signal(SIGCONT);
  }
  worker.Kill();
  ExpectWhole(*Open());
}

}  // namespace
}  // namespace embercache
