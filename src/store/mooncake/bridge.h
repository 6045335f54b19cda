#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "embercache/buffer.h"
#include "embercache/clock.h"
#include "embercache/status.h"
#include "src/base/mutex.h"
#include "src/store/mooncake/channel.h"
#include "src/store/mooncake/descriptor.h"
#include "src/store/mooncake/host.h"
#include "src/store/mooncake/mooncake_config.h"

namespace embercache::mooncake {

// A part of an object, by its address in the bridge.
struct Part {
  uint64_t address = 0;
  uint64_t size = 0;
};

// One object of a request. Without parts where the operation moves no bytes.
struct Request {
  std::string_view key;
  std::vector<Part> parts;
};

// Memory that bridges map. The descriptor is our own, so that a later bridge gets it too. Two
// regions are the same when they are one object: addresses come again.
struct Region {
  BufferRegion region;
  Descriptor file;

  // A region of its own over the same memory; without a descriptor there is none to map.
  static Result<std::shared_ptr<const Region>> Of(const BufferRegion& region);
  // Whether the memory lies in it as a whole.
  bool Holds(ConstBuffer memory) const;
};

// Parts of a request, at most: a client's queue to an owner is short, and what finds it full fails.
inline constexpr size_t kMaxRequestParts = 512;
inline constexpr size_t kMaxRequestKeys = 128;

// One bridge, from its start to its end. Its supervisor starts, sets up and ends it; any
// thread may ask it meanwhile. Once retired it takes no more requests.
class Bridge {
 public:
  // `wake_fd`: an eventfd that Retire writes to.
  static Result<std::shared_ptr<Bridge>> Start(const MooncakeConfig& config, Way way, int wake_fd);
  // Ends it at once.
  ~Bridge();

  // ---- For the supervisor, one thread.
  // Makes the client; says what it is made of: package and version, or the library's file.
  // NotFound: there is no client to make by this way.
  Result<std::string> SetUp(Duration allowance);
  Status OpenChannels();
  Status Map(std::shared_ptr<const Region> region);
  void Unmap(const Region& region);
  int end_fd() const { return host_->end_fd(); }
  // Retires it, gives requests in flight `grace` to be answered, kills and reaps the host.
  // Returns how it ended. Idempotent.
  std::string End(Duration grace);
  // Kills it; any thread. What waits for an answer wakes up.
  void Kill();
  // Lets End return though the client hangs in this process. REQUIRES: nobody waits for an answer.
  void Abandon() { host_->Abandon(); }

  // ---- For anyone.
  pid_t pid() const { return host_->pid(); }
  Way way() const { return way_; }
  // An object in more parts cannot be transferred in place.
  size_t max_object_parts() const { return way_ == Way::kWheel ? kMaxRequestParts : 1; }
  // The region's address in the bridge; nothing where it is not mapped.
  std::optional<uint64_t> AddressOf(const Region& region) const;
  // One number a request. Waits for a free channel until `deadline`, and for the answer as long as
  // it takes: where it fails, the memory of the parts is not used any more, since the process is
  // gone, or because it never knew of them.
  // REQUIRES: at most kMaxRequestKeys requests with kMaxRequestParts parts together.
  Result<std::vector<int64_t>> Ask(Op op, std::span<const Request> requests, TimePoint deadline);
  // The same, for the supervisor: where it fails, the memory may be in use until End.
  Result<std::vector<int64_t>> Try(Op op, std::span<const Request> requests, TimePoint deadline);
  // No more requests; the supervisor will end it.
  void Retire(std::string reason);
  bool retired() const;
  // Why; empty while it is not retired.
  std::string reason() const;
  // Until the process has ended, and with it all that it may still have done to memory.
  void WaitUntilReaped();

 private:
  Bridge(const MooncakeConfig& config, Way way, std::unique_ptr<Host> host, Descriptor control,
         int wake_fd);

  // `sent`: set once the process may know of the request.
  Result<std::vector<int64_t>> Try(Op op, std::span<const Request> requests, TimePoint deadline,
                                   bool& sent);
  Result<Answer> AskControl(Op op, std::span<const std::byte> body, int fd, Duration allowance);
  // A channel, and room for the parts.
  Result<std::unique_ptr<Channel>> TakeChannel(size_t parts, TimePoint deadline);
  void ReturnChannel(std::unique_ptr<Channel> channel, size_t parts);

  struct Mapping {
    std::shared_ptr<const Region> region;
    uint64_t address;
  };

  const MooncakeConfig config_;
  const Way way_;
  const int wake_fd_;
  const std::unique_ptr<Host> host_;
  Channel control_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Mapping> mappings_ GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Channel>> free_channels_ GUARDED_BY(mutex_);
  size_t in_flight_ GUARDED_BY(mutex_) = 0;
  size_t parts_in_flight_ GUARDED_BY(mutex_) = 0;
  bool retired_ GUARDED_BY(mutex_) = false;
  std::string reason_ GUARDED_BY(mutex_);
  bool reaped_ GUARDED_BY(mutex_) = false;
  std::string end_ GUARDED_BY(mutex_);
};

}  // namespace embercache::mooncake
