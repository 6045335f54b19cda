#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "embercache/store.h"
#include "src/base/mutex.h"
#include "src/store/mooncake/bounce_area.h"
#include "src/store/mooncake/bridge.h"
#include "src/store/mooncake/mooncake_config.h"

namespace embercache::mooncake {

// What is in use now, for /v1/stats.
struct InUse {
  std::string library;  // package and version, or file; empty until a set-up has succeeded
  Way way = Way::kWheel;
  pid_t pid = -1;       // none now, or a client in this process
  uint64_t starts = 0;  // bridges so far
};

// Keeps one bridge: finds a way to run it, starts it, sets it up, tests it, ends it when it is
// retired or dies, and starts the next one with back-off. All of that on a thread of its own.
// Thread-safe.
class Supervisor {
 public:
  static Result<std::unique_ptr<Supervisor>> Start(MooncakeConfig config);
  // Leaves a client that hangs in this process behind. REQUIRES: no call is running.
  ~Supervisor();

  // The bridge to ask, or why there is none now.
  Result<std::shared_ptr<Bridge>> Current();
  StoreHealth health();
  InUse in_use();
  // Changes whenever a bridge is set up.
  uint64_t era();

  BounceArea& bounce() { return *bounce_; }
  // Where the bridge has this memory; nothing where it has not. What has been removed by then is
  // not found, whatever the bridge still maps.
  std::optional<uint64_t> AddressOf(const Bridge& bridge, ConstBuffer memory);
  // From when the thread gets to it, which is soon; until then the region goes by the bounce area.
  Status AddRegion(const BufferRegion& region);
  void RemoveRegion(const BufferRegion& region);

  // Ends the bridge, without waiting for requests. False where that is not done by `deadline`,
  // since a client in this process hangs. Idempotent.
  bool Stop(TimePoint deadline);

 private:
  Supervisor(MooncakeConfig config, std::unique_ptr<BounceArea> bounce,
             std::shared_ptr<const Region> bounce_region, BouncePiece test_memory, Descriptor wake);
  void Run();
  // One bridge, from start to end. `why_not`: there is no such client.
  enum class Life { kServed, kFailed, kNoSuchClient };
  Life RunBridge(Way way, std::string* why_not);
  // Notes which client there is not. Whether there is another way to try.
  bool TryNextWay(const std::string& why_not);
  Status SetUp(Bridge& bridge);
  // Until the bridge is to be ended.
  void Watch(const std::shared_ptr<Bridge>& bridge);
  // Lets callers have it. `test`: what its self-test says.
  void EnterService(const std::shared_ptr<Bridge>& bridge, const Status& test);
  // Maps and unmaps what has changed.
  void MapRegions(Bridge& bridge);
  // Takes the bridge away from callers.
  void SetDown(const std::string& why);
  // The same, and logs it.
  void Fail(const std::string& what);
  // Waits for a wake-up or the bridge's end; false when the time passed.
  bool Sleep(int end_fd, Duration time);
  void WakeUp();
  bool stopping();

  const MooncakeConfig config_;
  const std::unique_ptr<BounceArea> bounce_;
  const std::shared_ptr<const Region> bounce_region_;
  const BouncePiece test_memory_;  // its own, since a self-test that failed may still use it
  const Descriptor wake_;
  std::minstd_rand random_;  // the thread's
  const std::vector<Way> ways_;
  size_t way_ = 0;                                     // the thread's: of ways_
  std::vector<std::string> absent_;                    // the thread's: why not by those before
  std::string last_failure_;                           // the thread's: a line is logged once
  std::vector<std::shared_ptr<const Region>> mapped_;  // the thread's: by the bridge of now

  Mutex mutex_;
  CondVar ended_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  bool thread_ended_ GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<const Region>> regions_ GUARDED_BY(mutex_);
  std::shared_ptr<Bridge> starting_ GUARDED_BY(mutex_);  // from its start to its end
  std::shared_ptr<Bridge> current_ GUARDED_BY(mutex_);
  StoreHealth health_ GUARDED_BY(mutex_);
  InUse in_use_ GUARDED_BY(mutex_);
  uint64_t era_ GUARDED_BY(mutex_) = 0;

  std::thread thread_;  // last: uses all of the above
};

}  // namespace embercache::mooncake
