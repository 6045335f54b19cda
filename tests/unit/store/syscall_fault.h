#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

namespace embercache {

// A system call that fails, of those whose argument matches where one is named.
struct SyscallFault {
  long number = 0;
  int error = EIO;
  std::optional<unsigned> argument;  // its index
  // The lower 32 bits of the argument have to be at least this, or, with `exact`, equal.
  uint32_t value = 0;
  bool exact = true;
};

// Runs `body` in a thread of its own in which that system call fails and all others work. Other
// threads notice nothing.
inline void RunWithFault(const SyscallFault& fault, const std::function<void()>& body) {
  std::thread([&] {
    std::vector<sock_filter> program;
    const auto load = [&](size_t offset) {
      program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)));
    };
    const uint8_t to_allow = fault.argument ? 3 : 1;
    load(offsetof(seccomp_data, nr));
    program.push_back(
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(fault.number), 0, to_allow));
    if (fault.argument) {
      load(offsetof(seccomp_data, args) + *fault.argument * sizeof(uint64_t));
      const uint16_t compare = fault.exact ? BPF_JEQ : BPF_JGE;
      program.push_back(
          BPF_JUMP(static_cast<uint16_t>(BPF_JMP | compare | BPF_K), fault.value, 0, 1));
    }
    program.push_back(
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(fault.error)));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    const sock_fprog filter = {static_cast<uint16_t>(program.size()), program.data()};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
      std::perror("this test needs seccomp filters, which this kernel or container refuses");
      std::abort();
    }
    body();
  }).join();
}

}  // namespace embercache
