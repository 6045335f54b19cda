#include "src/store/mooncake/codes.h"

#include <fmt/format.h>

#include <string_view>

namespace embercache::mooncake {
namespace {

std::string_view MeaningOf(int64_t code) {
  switch (code) {
    case kNoRoom:
      return "no segment has room now";
    case kInvalidParameters:
      return "a buffer or a size is refused";
    case kNotReady:
      return "it is being written";
    case kNotFound:
      return "it is not there";
    case kLeased:
      return "it is leased to readers";
    case kLeaseExpired:
      return "the lease ran out during the transfer";
    case kBusy:
      return "it is busy";
    case kTransferFailed:
      return "the transfer failed";
    case -900:
      return "the master does not answer";
    case -901:
      return "the master did not answer in time";
    default:
      return "not a code that is known here";
  }
}

}  // namespace

std::string DescribeCode(int64_t code) {
  return fmt::format("{} ({})", code, MeaningOf(code));
}

}  // namespace embercache::mooncake
