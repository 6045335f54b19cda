#pragma once

#include <sys/stat.h>

#include <cstdint>

#include "embercache/status.h"
#include "embercache/store.h"

namespace embercache {

// What the times of an object's file mean:
//   modification time, seconds       when it was put, or last found present by a put: its age
//   modification time, nanoseconds   random, chosen at the put: with inode and size, its version
//   access time                      when it was last used
// The change time is of no use: setting the others changes it.

ObjectVersion VersionOf(const struct stat& info);

// Bytes that an object counts for in the budget: its size in whole blocks, one for an empty one.
uint64_t ChargeOf(uint64_t object_bytes);

// Whether the object is older than `ttl_s` seconds; never when that is 0.
bool IsExpired(const struct stat& info, int64_t ttl_s);

// Gives a new file its age and version.
Status StampNewObject(int fd);

// Notes that the object was used, and at the same time makes it young when `refresh_age`. At most
// once a second: more would not change the order of eviction much. A file of another user cannot
// be touched, and then keeps its times.
void TouchObject(int fd, const struct stat& info, bool refresh_age);

}  // namespace embercache
