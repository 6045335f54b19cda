#include <fmt/format.h>

#include "src/server/encode_request.h"
#include "src/server/multipart.h"

namespace embercache {
namespace {

constexpr size_t kTextParts = 3;

std::string Text(const FormPart& part) {
  return {reinterpret_cast<const char*>(part.content.data()), part.content.size()};
}

Status TakeText(const FormPart& part, EncodeRequest* request, MediaOptions* options) {
  if (part.name == "request_id") {
    request->request_id = Text(part);
  } else if (part.name == "model") {
    request->model = Text(part);
  } else if (part.name == "options") {
    EMBERCACHE_ASSIGN_OR_RETURN(*options, ParseMediaOptions(Text(part)));
  } else {
    return Status::Invalid(fmt::format(
        "unknown field '{}'; known are request_id, model, options, and parts with a file name",
        part.name));
  }
  return Status::Ok();
}

}  // namespace

Result<EncodeRequest> ParseEncodeForm(BodyBuffer& body, std::string_view boundary,
                                      size_t max_items) {
  EMBERCACHE_ASSIGN_OR_RETURN(const std::vector<FormPart> parts,
                              ParseMultipart(body.bytes(), boundary, max_items + kTextParts + 1));
  EncodeRequest request;
  MediaOptions options;
  for (const FormPart& part : parts) {
    if (!part.is_file) {
      EMBERCACHE_RETURN_IF_ERROR(TakeText(part, &request, &options));
      continue;
    }
    if (request.items.size() == max_items) {
      return Status(StatusCode::kResourceExhausted,
                    fmt::format("more than {} items in a request (--max-items)", max_items));
    }
    request.items.emplace_back().text = part.content;
  }
  for (RequestedItem& item : request.items) item.options = options;
  if (request.items.empty()) return Status::Invalid("a form has to have at least one file");
  return request;
}

}  // namespace embercache
