#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "embercache/status.h"
#include "src/store/redis/command.h"
#include "src/store/redis/resp_value.h"

namespace embercache::redis {

class Connection;
class Server;
struct Call;

// Which of a server's connections carry a request; gets and puts do not wait for each other.
enum class Lane : uint8_t { kRead, kWrite, kTransaction };

// Memory that a bulk reply is received into.
struct BulkTarget {
  // The first buffer is a head: it takes the bulk's first bytes, whatever its length. The others
  // are filled only when the bulk has exactly the length of all together; else the rest is dropped.
  std::vector<MutableBuffer> buffers;

  // The answer.
  bool present = false;         // it was a bulk
  uint64_t received_bytes = 0;  // its length
};

// One command or several, sent back to back on one connection, and what came back. Its owner fills
// the first part, hands it to Client::Run, and reads the second part afterwards.
struct Request {
  Lane lane = Lane::kRead;
  uint16_t slot = 0;
  std::string server;  // send it to this one, whatever the slot; empty: to the one of the slot
  Wire wire;
  uint64_t reply_bytes = 0;  // what to expect, for the bound on bytes in flight
  std::optional<BulkTarget> target;
  // Of a kTransaction: makes the commands of its second step, which ends the WATCH of the first,
  // from the replies of the first. Called on the client's thread, again after each retry.
  std::function<Wire(const std::vector<RespValue>& replies)> second_step;

  // Called once the request is done with status OK, if its caller's own thread finds so: while the
  // caller's other requests are on their way. Must not throw.
  std::function<void()> answered;

  // OK when all commands were answered, none with an error.
  Status status;
  // One a command of the last step; a bulk that went to the target is empty here.
  std::vector<RespValue> replies;
  // A connection was lost with this request on it (of a transaction, its second step), so the
  // server may have done it one more time, or done it though `status` says Unavailable.
  bool uncertain = false;

  // The client's own notes, while it runs.
  struct Notes {
    Call* call = nullptr;
    Server* server = nullptr;          // that has it, waiting or in flight
    Connection* connection = nullptr;  // where it is in flight
    Wire second;
    bool in_second_step = false;
    bool asking = false;
    int redirections = 0;
    int losses = 0;
    bool done = false;
  } notes;

  const Wire& current_wire() const { return notes.in_second_step ? notes.second : wire; }
};

}  // namespace embercache::redis
