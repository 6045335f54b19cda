#pragma once

// The requests that an object's operations are made of, and what their answers mean.

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "embercache/status.h"
#include "embercache/store.h"
#include "src/store/redis/client.h"
#include "src/store/redis/object.h"
#include "src/store/redis/redis_config.h"
#include "src/store/redis/request.h"

namespace embercache::redis {

// What one batch call works with.
struct Session {
  Client& client;
  const RedisConfig& config;
  const CallContext& context;

  // Runs them all; a container of pointers to things that have a `request`.
  template <typename Operations>
  void Run(const Operations& operations) const {
    std::vector<Request*> requests;
    for (const auto& operation : operations) requests.push_back(&operation->request);
    client.Run(requests, context);
  }
};

// A key, and what follows from it.
struct ObjectName {
  explicit ObjectName(std::string_view key);

  std::string redis_key;
  uint64_t check;
  uint16_t slot;
};

// What lies under an object's key. Not OK: unknown, or not of this format. nullopt: nothing.
using FoundHead = Result<std::optional<Head>>;

// Reads the head under the key, and no payload.
struct HeadRead {
  explicit HeadRead(const ObjectName& name);
  FoundHead found() const;

  Request request;
  const uint64_t check;
};

// Gets a value: its head and, where that has the expected length, its payload into the buffers.
struct ValueRead {
  ValueRead(std::string_view redis_key, const ObjectName& name, std::vector<MutableBuffer> payload);
  ValueRead(const ValueRead&) = delete;
  ValueRead& operator=(const ValueRead&) = delete;
  FoundHead found() const;
  // The bytes after the head of what was found.
  uint64_t payload_bytes() const { return request.target->received_bytes - kHeadBytes; }

  Request request;
  const uint64_t check;
  std::array<std::byte, kHeadBytes> head{};
};

// Commands that touch one object, sent as they are.
struct Commands {
  Commands(const ObjectName& name, Wire wire);

  Request request;
};

// Changes that are made only if what lies under the key is still what they were decided on: WATCH,
// a look at the head, and MULTI/EXEC.
class Guarded {
 public:
  // Looks at what is there, and adds the commands to do; false to do nothing. Called on the
  // client's thread, while the caller waits.
  using Decide = std::function<bool(const FoundHead& found, CommandWriter& commands)>;
  enum class Outcome : uint8_t {
    kDone,
    kDeclined,  // `decide` said no
    kConflict,  // what was there changed meanwhile, each time
    kFailed,    // see status()
  };

  // `payload_bytes`: what the commands carry, for the bound on bytes in flight.
  Guarded(const ObjectName& name, uint64_t payload_bytes, Decide decide);
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  Outcome outcome() const { return outcome_; }
  Status status() const;
  // kDone: one a command.
  const std::vector<RespValue>& results() const { return request.replies.back().elements; }

  Request request;

 private:
  friend void RunGuarded(const Session& session,
                         std::span<const std::unique_ptr<Guarded>> operations);
  Wire SecondStep(const std::vector<RespValue>& replies);
  void Judge();

  const uint64_t check_;
  const Decide decide_;
  bool declined_ = false;
  Outcome outcome_ = Outcome::kFailed;
};

// Adds the command that removes the object under the name: its value and its chunks.
void AddUnlink(CommandWriter& commands, const ObjectName& name, const Head& head);
// Its chunks alone.
void AddUnlinkChunks(CommandWriter& commands, const ObjectName& name, const Head& head);

// Runs them all, again where there was a conflict.
void RunGuarded(const Session& session, std::span<const std::unique_ptr<Guarded>> operations);

}  // namespace embercache::redis
