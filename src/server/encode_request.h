#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "embercache/digest.h"
#include "embercache/media.h"
#include "embercache/status.h"
#include "src/server/http_message.h"

namespace embercache {

// How a request gives the bytes of an item.
enum class MediaForm : uint8_t { kBytes, kBase64, kPath };

// One item of POST /v1/encode, as it was asked for.
struct RequestedItem {
  // Not ok: the item is wrong, and the rest of it is undefined.
  Status error;
  MediaForm form = MediaForm::kBytes;
  // kBytes and kBase64: where the body, or `unescaped`, has it.
  std::span<std::byte> text;
  std::vector<std::byte> unescaped;
  std::string path;
  std::optional<Digest256> sha256;
  MediaOptions options;
};

struct EncodeRequest {
  std::string request_id;  // empty when the caller gave none
  std::string model;       // empty: the only one
  std::vector<RequestedItem> items;
};

// Reads the JSON body of POST /v1/encode. The items' texts stay in `body`. An item that is wrong
// has its error; the request as a whole fails with Invalid when it is not JSON of that form, and
// with ResourceExhausted (not retryable) when it has more than `max_items` items.
Result<EncodeRequest> ParseEncodeRequest(BodyBuffer& body, size_t max_items);

// The same of a multipart/form-data body: one file part an item, in order; the text parts
// request_id, model, and options, which are every item's.
Result<EncodeRequest> ParseEncodeForm(BodyBuffer& body, std::string_view boundary,
                                      size_t max_items);

}  // namespace embercache
