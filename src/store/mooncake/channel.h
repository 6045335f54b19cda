#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "embercache/clock.h"
#include "embercache/status.h"
#include "src/store/mooncake/process.h"
#include "src/store/mooncake/protocol.h"

namespace embercache::mooncake {

struct Answer {
  std::vector<int64_t> numbers;
  std::string text;
};

// One socket to a bridge: a request, then its answer. Not synchronised.
class Channel {
 public:
  explicit Channel(Descriptor socket) : socket_(std::move(socket)) {}

  // `pass_fd`: a descriptor that goes with the request, or -1. DeadlineExceeded: no answer yet, and
  // the channel is out of step. Unavailable: the bridge is gone. NotFound: there is no client to
  // set up there. Internal: it answers an error, or what is no answer. `deadline` is real time.
  Result<Answer> Ask(Op op, uint32_t count, std::span<const std::byte> body, int pass_fd,
                     TimePoint deadline);

 private:
  Status Send(std::span<const std::byte> bytes, int pass_fd, TimePoint deadline);
  Status Receive(std::span<std::byte> bytes, TimePoint deadline);

  const Descriptor socket_;
};

}  // namespace embercache::mooncake
