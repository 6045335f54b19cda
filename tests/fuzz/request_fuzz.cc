// Whatever comes as the body of POST /v1/encode, JSON or a form, is refused or read: never more
// items than allowed, and no item's bytes outside the body or its own storage.
//
// Input: a byte that chooses JSON (even) or a form, then the body.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "src/server/encode_request.h"
#include "src/server/media_bytes.h"

namespace embercache {
namespace {

constexpr size_t kMaxItems = 8;
constexpr uint64_t kMaxBytes = 1 << 16;

void Check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "request fuzzer: %s\n", what);
  std::abort();
}

bool Inside(std::span<const std::byte> part, std::span<const std::byte> whole) {
  const std::less_equal<const std::byte*> before;
  return part.empty() || (before(whole.data(), part.data()) &&
                          before(part.data() + part.size(), whole.data() + whole.size()));
}

void FuzzRequest(bool form, std::span<const std::byte> input) {
  BodyBuffer body;
  const std::span<std::byte> copy = body.Extend(input.size());
  if (!input.empty()) std::memcpy(copy.data(), input.data(), input.size());
  Result<EncodeRequest> request =
      form ? ParseEncodeForm(body, "XX", kMaxItems) : ParseEncodeRequest(body, kMaxItems);
  if (!request.ok()) return Check(!request.status().message().empty(), "an error without a reason");
  Check(request->items.size() <= kMaxItems, "more items than allowed");
  for (RequestedItem& item : request->items) {
    if (!item.error.ok()) continue;
    const std::span<const std::byte> unescaped = item.unescaped;
    Check(Inside(item.text, body.bytes()) || Inside(item.text, unescaped), "text from elsewhere");
    std::vector<std::byte> storage;
    const auto media = TakeMediaBytes(item, MediaRoot(), kMaxBytes, &storage);
    if (!media.ok()) continue;
    Check(item.form != MediaForm::kPath, "a path was read without a media root");
    Check(Inside(*media, body.bytes()) || Inside(*media, item.unescaped) || Inside(*media, storage),
          "media from elsewhere");
  }
}

}  // namespace
}  // namespace embercache

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size));
  embercache::FuzzRequest(data[0] % 2 == 1, bytes.subspan(1));
  return 0;
}
