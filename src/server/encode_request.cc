#include "src/server/encode_request.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <memory>
#include <string_view>

// simdjson's on-demand parser checks what it is asked for, so every field is asked for by type, and
// a field that is not known is an error. Its errors are of two kinds: a value of another type than
// asked for, which is the item's own fault, and text that is not JSON, which ends the request.

namespace embercache {
namespace {

namespace ondemand = simdjson::ondemand;
using simdjson::error_code;

// A parser keeps tables of the largest document's size; beyond this it is not kept.
constexpr size_t kKeptParserBytes = 8 << 20;

bool IsTypeError(error_code error) {
  return error == simdjson::INCORRECT_TYPE || error == simdjson::STRING_ERROR;
}

// What an item, or the request, has wrong; or what makes the whole body unreadable.
struct Fault {
  Status own;
  error_code json = simdjson::SUCCESS;
};

Status NotJson(error_code error) {
  return Status::Invalid(
      fmt::format("the body is not JSON: {} (a form has to be declared as multipart/form-data)",
                  simdjson::error_message(error)));
}

// The value as a string, or the field's fault.
std::optional<std::string_view> StringOf(ondemand::value value, std::string_view field,
                                         Fault* fault) {
  std::string_view text;
  const error_code error = value.get_string().get(text);
  if (!error) return text;
  if (IsTypeError(error)) {
    fault->own = Status::Invalid(fmt::format("field '{}' has to be a string", field));
  } else {
    fault->json = error;
  }
  return std::nullopt;
}

// Calls on_field(name, value, fault) for each field until one has a fault; a field that comes twice
// has one.
template <class OnField>
Fault ForEachField(ondemand::object object, OnField on_field) {
  Fault fault;
  std::vector<std::string> seen;
  for (auto entry : object) {
    ondemand::field field;
    std::string_view name;
    if ((fault.json = std::move(entry).get(field)) ||
        (fault.json = field.unescaped_key().get(name)))
      break;
    const std::string kept(name);
    if (std::find(seen.begin(), seen.end(), kept) != seen.end()) {
      fault.own = Status::Invalid(fmt::format("field '{}' comes twice", kept));
    } else {
      on_field(kept, field.value(), &fault);
      seen.push_back(kept);
    }
    if (fault.json || !fault.own.ok()) break;
  }
  return fault;
}

class ItemReader {
 public:
  explicit ItemReader(BodyBuffer& body) : body_(body) {}

  Fault Read(ondemand::value value, RequestedItem* item) {
    ondemand::object object;
    if (const error_code error = value.get_object().get(object)) {
      if (!IsTypeError(error)) return {Status::Ok(), error};
      return {Status::Invalid("an item has to be an object"), simdjson::SUCCESS};
    }
    Fault fault = ForEachField(
        object, [&](const std::string& name, ondemand::value field, Fault* field_fault) {
          ReadField(name, field, item, field_fault);
        });
    if (!fault.json && fault.own.ok()) fault.own = CheckComplete();
    return fault;
  }

 private:
  void ReadField(const std::string& name, ondemand::value value, RequestedItem* item,
                 Fault* fault) {
    if (name == "data") {
      ReadData(value, item, fault);
    } else if (name == "url") {
      ReadUrl(value, item, fault);
    } else if (name == "options") {
      ReadOptions(value, item, fault);
    } else if (name == "type" || name == "path" || name == "sha256") {
      if (const auto text = StringOf(value, name, fault)) {
        fault->own = ReadText(name, *text, item);
      }
    } else {
      fault->own = Status::Invalid(fmt::format(
          "unknown field '{}'; known are type, data, url, path, sha256, options", name));
    }
  }

  Status ReadText(const std::string& name, std::string_view text, RequestedItem* item) {
    if (name == "type") return ReadType(text);
    if (name == "path") {
      ++sources_;
      item->form = MediaForm::kPath;
      item->path = text;
      return Status::Ok();
    }
    item->sha256 = Digest256::FromHex(text);
    return item->sha256 ? Status::Ok()
                        : Status::Invalid("field 'sha256' has to be 64 hexadecimal digits");
  }

  Status ReadType(std::string_view type) {
    has_type_ = true;
    if (type == "image") return Status::Ok();
    if (type == "video" || type == "audio") {
      return Status::Unimplemented(fmt::format("no model here serves type '{}'", type));
    }
    return Status::Invalid(fmt::format("field 'type' is '{}'; it has to be \"image\"", type));
  }

  void ReadData(ondemand::value value, RequestedItem* item, Fault* fault) {
    ++sources_;
    item->form = MediaForm::kBase64;
    ReadLongText(value, "data", item, fault);
  }

  void ReadUrl(ondemand::value value, RequestedItem* item, Fault* fault) {
    ++sources_;
    item->form = MediaForm::kBase64;
    if (!ReadLongText(value, "url", item, fault)) return;
    const std::string_view url(reinterpret_cast<const char*>(item->text.data()), item->text.size());
    const size_t comma = url.find(',');
    if (!url.starts_with("data:")) {
      fault->own = Status::Invalid(
          "field 'url' has to be a data: URL; this version fetches nothing from the network");
    } else if (comma == std::string_view::npos || !url.substr(0, comma).ends_with(";base64")) {
      fault->own = Status::Invalid(
          "field 'url' has to be of the form data:image/png;base64,… with base64 text");
    } else {
      item->text = item->text.subspan(comma + 1);
    }
  }

  // Leaves the text where it is, unless it has escapes.
  bool ReadLongText(ondemand::value value, std::string_view field, RequestedItem* item,
                    Fault* fault) {
    ondemand::json_type type;
    if ((fault->json = value.type().get(type))) return false;
    const std::string_view token = value.raw_json_token();
    if (type == ondemand::json_type::string && token.find('\\') == std::string_view::npos) {
      const auto begin =
          reinterpret_cast<const std::byte*>(token.data() + 1) - body_.bytes().data();
      item->text = body_.bytes().subspan(static_cast<size_t>(begin), token.rfind('"') - 1);
      return true;
    }
    const auto text = StringOf(value, field, fault);
    if (!text) return false;
    const auto bytes = std::as_bytes(std::span(*text));
    item->unescaped.assign(bytes.begin(), bytes.end());
    item->text = item->unescaped;
    return true;
  }

  void ReadOptions(ondemand::value value, RequestedItem* item, Fault* fault) {
    ondemand::object object;
    std::string_view json;
    if (const error_code error = value.get_object().get(object)) {
      if (!IsTypeError(error)) fault->json = error;
      fault->own = Status::Invalid("field 'options' has to be an object");
    } else if (!(fault->json = object.raw_json().get(json))) {
      Result<MediaOptions> options = ParseMediaOptions(json);
      if (options.ok()) item->options = *options;
      fault->own = options.status();
    }
  }

  Status CheckComplete() const {
    if (!has_type_) return Status::Invalid("field 'type' is missing; it has to be \"image\"");
    if (sources_ == 1) return Status::Ok();
    return Status::Invalid(sources_ == 0 ? "one of the fields data, url, path has to be there"
                                         : "only one of the fields data, url, path may be there");
  }

  BodyBuffer& body_;
  bool has_type_ = false;
  int sources_ = 0;
};

void ReadItems(ondemand::value value, BodyBuffer& body, size_t max_items, EncodeRequest* request,
               Fault* fault) {
  ondemand::array array;
  if (const error_code error = value.get_array().get(array)) {
    if (!IsTypeError(error)) fault->json = error;
    fault->own = Status::Invalid("field 'items' has to be an array");
    return;
  }
  for (auto entry : array) {
    ondemand::value element;
    if ((fault->json = std::move(entry).get(element))) return;
    if (request->items.size() == max_items) {
      fault->own = Status(StatusCode::kResourceExhausted,
                          fmt::format("more than {} items in a request (--max-items)", max_items));
      return;
    }
    RequestedItem& item = request->items.emplace_back();
    Fault item_fault = ItemReader(body).Read(element, &item);
    if ((fault->json = item_fault.json)) return;
    item.error = std::move(item_fault.own);
  }
}

void ReadField(const std::string& name, ondemand::value value, BodyBuffer& body, size_t max_items,
               EncodeRequest* request, Fault* fault) {
  if (name == "items") {
    ReadItems(value, body, max_items, request, fault);
  } else if (name == "request_id" || name == "model") {
    if (const auto text = StringOf(value, name, fault)) {
      (name == "model" ? request->model : request->request_id) = *text;
    }
  } else {
    fault->own = Status::Invalid(
        fmt::format("unknown field '{}'; known are request_id, model, items", name));
  }
}

Result<EncodeRequest> Parse(ondemand::parser& parser, BodyBuffer& body, size_t max_items) {
  const simdjson::padded_string_view text(reinterpret_cast<const char*>(body.bytes().data()),
                                          body.size(), body.size() + BodyBuffer::kPadding);
  ondemand::document document;
  if (const error_code error = parser.iterate(text).get(document)) return NotJson(error);
  ondemand::object object;
  if (const error_code error = document.get_object().get(object)) {
    return IsTypeError(error) ? Status::Invalid("the body has to be a JSON object")
                              : NotJson(error);
  }
  EncodeRequest request;
  Fault fault =
      ForEachField(object, [&](const std::string& name, ondemand::value value, Fault* field_fault) {
        ReadField(name, value, body, max_items, &request, field_fault);
      });
  if (fault.json) return NotJson(fault.json);
  if (!fault.own.ok()) return std::move(fault.own);
  if (document.current_location().error() != simdjson::OUT_OF_BOUNDS) {
    return NotJson(simdjson::TRAILING_CONTENT);
  }
  if (request.items.empty()) return Status::Invalid("field 'items' has to name at least one item");
  return request;
}

}  // namespace

Result<EncodeRequest> ParseEncodeRequest(BodyBuffer& body, size_t max_items) {
  static_assert(BodyBuffer::kPadding >= simdjson::SIMDJSON_PADDING);
  if (body.size() == 0) return NotJson(simdjson::EMPTY);
  thread_local std::unique_ptr<ondemand::parser> parser;
  if (!parser) parser = std::make_unique<ondemand::parser>();
  Result<EncodeRequest> request = Parse(*parser, body, max_items);
  if (body.size() > kKeptParserBytes) parser.reset();
  return request;
}

}  // namespace embercache
