#include "src/store/mooncake/self_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "src/store/mooncake/codes.h"

namespace embercache::mooncake {
namespace {

constexpr Duration kAllowance = std::chrono::seconds(30);
// An owner that has only just started is not there at once.
constexpr int kPutTries = 3;
constexpr Duration kPutPause = std::chrono::milliseconds(300);

Status Failed(std::string_view step, int64_t code, std::string_view hint) {
  return Status::Unavailable(
      fmt::format("self-test: {} answers {}; {}", step, DescribeCode(code), hint));
}

Result<int64_t> AskOne(Bridge& bridge, Op op, std::string_view key, std::vector<Part> parts) {
  const Request request{key, std::move(parts)};
  auto answer = bridge.Try(op, {&request, 1}, SteadyClock().Now() + kAllowance);
  if (!answer.ok()) {
    return Status(answer.status().code(), "self-test: " + answer.status().message(), true);
  }
  return answer->front();
}

Status Put(Bridge& bridge, std::string_view key, const std::vector<Part>& parts) {
  for (int tries = 1;; ++tries) {
    EMBERCACHE_ASSIGN_OR_RETURN(const int64_t code, AskOne(bridge, Op::kPut, key, parts));
    if (code == 0) return Status::Ok();
    if (code != kNoRoom) {
      return Failed("put", code, "are client and master of one version, and owners reachable?");
    }
    if (tries == kPutTries) {
      return Status::ResourceExhausted(
          fmt::format("self-test: put answers {}; is a segment owner running (mooncake_client), "
                      "and is not all of it leased?",
                      DescribeCode(code)));
    }
    std::this_thread::sleep_for(kPutPause);
  }
}

Status Get(Bridge& bridge, std::string_view key, const std::vector<Part>& parts) {
  EMBERCACHE_ASSIGN_OR_RETURN(const int64_t code, AskOne(bridge, Op::kGet, key, parts));
  if (code == static_cast<int64_t>(kSelfTestBytes)) return Status::Ok();
  if (code >= 0) {
    return Status::Unavailable(
        fmt::format("self-test: get answers {} bytes instead of {}", code, kSelfTestBytes));
  }
  return Failed("get", code, "are client and master of one version, and owners reachable?");
}

}  // namespace

Status RunSelfTest(Bridge& bridge, MutableBuffer memory, uint64_t address) {
  const std::vector<Part> parts = {{address, kSelfTestBytes}};
  std::random_device random;
  const std::string key = fmt::format("embercache_selftest_{:08x}{:08x}", random(), random());
  std::array<std::byte, kSelfTestBytes> bytes;
  std::generate(bytes.begin(), bytes.end(),
                [engine = std::mt19937(random())]() mutable { return std::byte(engine()); });

  std::copy(bytes.begin(), bytes.end(), memory.begin());
  EMBERCACHE_RETURN_IF_ERROR(Put(bridge, key, parts));
  std::fill(memory.begin(), memory.end(), std::byte(0));
  EMBERCACHE_RETURN_IF_ERROR(Get(bridge, key, parts));
  if (!std::equal(bytes.begin(), bytes.end(), memory.begin())) {
    return Status::Unavailable("self-test: the bytes that come back are not those that were put");
  }
  EMBERCACHE_ASSIGN_OR_RETURN(const int64_t code, AskOne(bridge, Op::kRemove, key, {}));
  // Its own get has leased it: it is left to eviction.
  if (code == 0 || code == kNotFound || code == kLeased || code == kBusy) return Status::Ok();
  return Failed("remove", code, "are client and master of one version?");
}

}  // namespace embercache::mooncake
