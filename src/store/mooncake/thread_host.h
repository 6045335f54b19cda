#pragma once

#include <memory>
#include <string>

#include "embercache/status.h"
#include "src/store/mooncake/descriptor.h"
#include "src/store/mooncake/host.h"

namespace embercache::mooncake {

// A bridge on threads of this program, by the C ABI. A client that crashes takes the program with
// it, and one that hangs cannot be ended: Reap waits for it until it is abandoned, and what is left
// then keeps the mappings that it has.
class ThreadHost final : public Host {
 public:
  static Result<std::unique_ptr<Host>> Start(Descriptor control);
  ~ThreadHost() override;

  pid_t pid() const override { return -1; }
  int end_fd() const override;
  void Kill() override;
  std::string Reap() override;
  void Abandon() override;

 private:
  struct State;
  explicit ThreadHost(std::shared_ptr<State> state);

  const std::shared_ptr<State> state_;
};

}  // namespace embercache::mooncake
