#include "src/memory/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace embercache {
namespace {

// The number in `path`; UINT64_MAX when there is none ("max") or no such file.
uint64_t ReadLimit(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? value : UINT64_MAX;
}

// The least limit from this process's cgroup up to the root.
uint64_t CgroupLimit() {
  uint64_t limit = std::min(ReadLimit("/sys/fs/cgroup/memory.max"),
                            ReadLimit("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.rfind("0::/", 0) != 0) continue;
    std::string path = line.substr(3);
    while (path.size() > 1) {
      limit = std::min(limit, ReadLimit("/sys/fs/cgroup" + path + "/memory.max"));
      path.resize(path.find_last_of('/'));
    }
  }
  return limit;
}

}  // namespace

uint64_t MemoryLimitBytes() {
  const auto machine =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return std::min(machine, CgroupLimit());
}

uint64_t DefaultPoolBytes() {
  return std::min<uint64_t>(4'000'000'000, MemoryLimitBytes() / 4);
}

}  // namespace embercache
