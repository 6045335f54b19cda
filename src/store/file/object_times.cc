#include "src/store/file/object_times.h"

#include <cerrno>
#include <ctime>
#include <random>

#include "src/store/file/io_error.h"

namespace embercache {
namespace {

timespec Now() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return now;
}

}  // namespace

ObjectVersion VersionOf(const struct stat& info) {
  const auto bytes = static_cast<uint64_t>(info.st_size);
  const auto tag = static_cast<uint64_t>(info.st_mtim.tv_nsec);  // below 2^30
  return {info.st_ino, (bytes << 30U) | tag};
}

uint64_t ChargeOf(uint64_t object_bytes) {
  constexpr uint64_t kBlockBytes = 4096;
  if (object_bytes == 0) return kBlockBytes;
  return (object_bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

bool IsExpired(const struct stat& info, int64_t ttl_s) {
  return ttl_s > 0 && Now().tv_sec - info.st_mtim.tv_sec > ttl_s;
}

Status StampNewObject(int fd) {
  const timespec now = Now();
  std::random_device random;
  const auto tag = static_cast<long>(random() % 1'000'000'000U);
  const timespec times[2] = {now, {now.tv_sec, tag}};
  return futimens(fd, times) == 0 ? Status::Ok() : IoError(errno, "set times");
}

void TouchObject(int fd, const struct stat& info, bool refresh_age) {
  const timespec now = Now();
  const bool use = now.tv_sec - info.st_atim.tv_sec >= 1;
  const bool age = refresh_age && now.tv_sec - info.st_mtim.tv_sec >= 1;
  if (!use && !age) return;
  const timespec mtime = {now.tv_sec, age ? info.st_mtim.tv_nsec : UTIME_OMIT};
  const timespec times[2] = {now, mtime};
  static_cast<void>(futimens(fd, times));
}

}  // namespace embercache
