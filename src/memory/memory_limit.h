#pragma once

#include <cstdint>

namespace embercache {

// Bytes of memory that this process may use: the smallest limit of its cgroups (v1 and v2), else
// the machine's memory.
uint64_t MemoryLimitBytes();

// Default size of the host cache: the smaller of 4 GB (4e9 bytes) and a quarter of the limit.
uint64_t DefaultPoolBytes();

}  // namespace embercache
