#include "src/server/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "src/server/error_response.h"
#include "src/server/safetensors.h"

namespace embercache {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSafetensors = "application/vnd.safetensors";

double Milliseconds(Duration duration) {
  return std::round(std::chrono::duration<double, std::micro>(duration).count()) / 1e3;
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// What is stored as metadata is JSON where this program wrote it.
Json MetadataOf(const EmbeddingInfo& info) {
  Json metadata = Json::parse(info.metadata, nullptr, false);
  return metadata.is_object() ? metadata : Json::object();
}

Json ErrorOf(const Status& status) {
  return {{"code", StatusCodeName(status.code())}, {"message", Shortened(status.message())}};
}

Json Describe(const AnswerItem& item, Duration total) {
  Json json = Json::object();
  if (item.has_key) json["key"] = item.key.digest.ToHex();
  if (!item.error.ok()) {
    json["error"] = ErrorOf(item.error);
    return json;
  }
  const EmbeddingInfo& info = item.pin.info();
  json["source"] = item.source;
  json["shape"] = {info.tokens, info.spec.hidden};
  json["dtype"] = DTypeName(info.spec.dtype);
  json["bytes"] = info.payload_bytes();
  json["metadata"] = MetadataOf(info);
  json["ms"] = {{"lookup", Milliseconds(item.lookup)},
                {"fetch", Milliseconds(item.fetch)},
                {"preprocess", Milliseconds(item.preprocess)},
                {"encode", Milliseconds(item.encode)},
                {"total", Milliseconds(total)}};
  return json;
}

Json DescribeAll(const Answer& answer) {
  Json items = Json::array();
  for (const AnswerItem& item : answer.items) items.push_back(Describe(item, answer.total));
  return items;
}

void ComposeSafetensors(Answer answer, HttpResponse* response) {
  const std::string items = Dump(DescribeAll(answer));
  std::vector<TensorEntry> tensors;
  for (size_t i = 0; i < answer.items.size(); ++i) {
    AnswerItem& item = answer.items[i];
    if (!item.error.ok()) continue;
    const EmbeddingInfo& info = item.pin.info();
    tensors.push_back({fmt::format("item_{}", i),
                       info.spec.dtype,
                       {info.tokens, info.spec.hidden},
                       info.payload_bytes()});
    const auto buffers = item.pin.buffers();
    response->payload.insert(response->payload.end(), buffers.begin(), buffers.end());
    response->pins.push_back(std::move(item.pin));
  }
  response->content_type = kSafetensors;
  response->text = SafetensorsHead({{"request_id", answer.request_id}, {"items", items}}, tensors);
}

// The q of `type` in an Accept header, where it is named; else -1.
double Preference(std::string_view accept, std::string_view type) {
  while (!accept.empty()) {
    const size_t comma = std::min(accept.find(','), accept.size());
    std::string_view range = accept.substr(0, comma);
    accept.remove_prefix(std::min(comma + 1, accept.size()));
    range.remove_prefix(std::min(range.find_first_not_of(" \t"), range.size()));
    if (!range.starts_with(type)) continue;
    range.remove_prefix(type.size());
    if (!range.empty() && range.front() != ';' && range.front() != ' ') continue;
    const size_t q = range.find("q=");
    if (q == std::string_view::npos) return 1;
    double value = 1;
    (void)std::from_chars(range.data() + q + 2, range.data() + range.size(), value);
    return value;
  }
  return -1;
}

}  // namespace

bool PrefersJson(std::string_view accept) {
  const double json = Preference(accept, "application/json");
  return json > 0 && json > Preference(accept, kSafetensors);
}

HttpResponse ComposeAnswer(Answer answer, bool json) {
  HttpResponse response;
  const auto succeeded = [](const AnswerItem& item) { return item.error.ok(); };
  if (std::none_of(answer.items.begin(), answer.items.end(), succeeded)) {
    const Status& first = answer.items.front().error;
    response = ErrorResponse(first);
    response.text = Dump({{"error", ErrorOf(first)},
                          {"request_id", answer.request_id},
                          {"items", DescribeAll(answer)}});
  } else if (json) {
    response.text =
        Dump({{"request_id", answer.request_id}, {"items", DescribeAll(answer)}}) + "\n";
  } else {
    ComposeSafetensors(std::move(answer), &response);
    return response;
  }
  return response;
}

}  // namespace embercache
