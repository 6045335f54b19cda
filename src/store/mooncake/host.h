#pragma once

#include <sys/types.h>

#include <string>

namespace embercache::mooncake {

// What a bridge runs in. Its owner kills and reaps it; Kill and Reap are one thread's, or
// synchronised by the owner.
class Host {
 public:
  virtual ~Host() = default;

  // -1 where it is no process.
  virtual pid_t pid() const = 0;
  // Readable once it has ended.
  virtual int end_fd() const = 0;
  virtual void Kill() = 0;
  // Waits for its end, after which it touches no memory; says how it ended: "exit code 1".
  virtual std::string Reap() = 0;
  // Lets Reap return without that. Any thread.
  virtual void Abandon() = 0;
};

}  // namespace embercache::mooncake
