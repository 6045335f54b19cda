#include "src/server/multipart.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <optional>

// A body is: preamble, then for each part CRLF "--" boundary CRLF, headers, an empty line and the
// content, and at the end CRLF "--" boundary "--". The first CRLF may be missing.

namespace embercache {
namespace {

constexpr size_t kMaxBoundaryBytes = 70;  // RFC 2046
constexpr std::string_view kLineEnd = "\r\n";

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Takes what comes before `separator`, outside quotes, off the front of `text`.
std::string_view TakeUntil(std::string_view* text, char separator) {
  bool quoted = false;
  size_t i = 0;
  for (; i < text->size() && (quoted || (*text)[i] != separator); ++i) {
    if ((*text)[i] == '"') quoted = !quoted;
    if ((*text)[i] == '\\' && quoted) ++i;
  }
  i = std::min(i, text->size());
  const std::string_view taken = text->substr(0, i);
  text->remove_prefix(std::min(i + 1, text->size()));
  return Trim(taken);
}

std::string Unquoted(std::string_view text) {
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') return std::string(text);
  std::string value;
  for (size_t i = 1; i + 1 < text.size(); ++i) {
    if (text[i] == '\\' && i + 2 < text.size()) ++i;
    value += text[i];
  }
  return value;
}

// The parameter `name` of a header value such as `form-data; name="a"; filename="b.png"`.
std::optional<std::string> Parameter(std::string_view value, std::string_view name) {
  TakeUntil(&value, ';');
  while (!value.empty()) {
    std::string_view parameter = TakeUntil(&value, ';');
    const std::string_view key = TakeUntil(&parameter, '=');
    if (EqualIgnoringCase(key, name)) return Unquoted(Trim(parameter));
  }
  return std::nullopt;
}

// The value of the header Content-Disposition among `headers`.
std::optional<std::string_view> Disposition(std::string_view headers) {
  while (!headers.empty()) {
    const size_t end = std::min(headers.find(kLineEnd), headers.size());
    std::string_view line = headers.substr(0, end);
    headers.remove_prefix(std::min(end + kLineEnd.size(), headers.size()));
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos &&
        EqualIgnoringCase(Trim(line.substr(0, colon)), "content-disposition")) {
      return Trim(line.substr(colon + 1));
    }
  }
  return std::nullopt;
}

Status Malformed(std::string_view what) {
  return Status::Invalid(fmt::format("the multipart body is malformed: {}", what));
}

class Reader {
 public:
  Reader(std::span<std::byte> body, std::string_view boundary)
      : body_(body), delimiter_(fmt::format("\r\n--{}", boundary)) {}

  // Goes behind the first delimiter.
  Status Begin() {
    const std::string_view first = std::string_view(delimiter_).substr(kLineEnd.size());
    if (Rest().starts_with(first)) {
      at_ = first.size();
      return Status::Ok();
    }
    const size_t found = Rest().find(delimiter_);
    if (found == std::string_view::npos) return Malformed("its boundary is not in it");
    at_ = found + delimiter_.size();
    return Status::Ok();
  }

  // Behind a delimiter: whether it was the last one.
  Result<bool> AtEnd() {
    if (Rest().starts_with("--")) return true;
    const size_t line_end = Rest().find(kLineEnd);
    if (line_end == std::string_view::npos || !Trim(Rest().substr(0, line_end)).empty()) {
      return Malformed("a boundary is not followed by a line break");
    }
    at_ += line_end;  // the line break stays: headers may be empty
    return false;
  }

  Result<FormPart> Next() {
    static constexpr std::string_view kEmptyLine = "\r\n\r\n";
    const size_t head_end = Rest().find(kEmptyLine);
    if (head_end == std::string_view::npos) return Malformed("the head of a part does not end");
    const std::string_view headers = Rest().substr(0, head_end);
    const size_t begin = at_ + head_end + kEmptyLine.size();
    // The delimiter of an empty part begins with the empty line's second half.
    at_ = begin - kLineEnd.size();
    const size_t found = Rest().find(delimiter_);
    if (found == std::string_view::npos) return Malformed("it was cut off");
    const size_t end = std::max(at_ + found, begin);
    at_ += found + delimiter_.size();

    FormPart part;
    part.content = body_.subspan(begin, end - begin);
    const auto disposition = Disposition(headers);
    const auto name = disposition ? Parameter(*disposition, "name") : std::nullopt;
    if (!name) return Malformed("a part has no Content-Disposition with a name");
    part.name = *name;
    part.is_file = Parameter(*disposition, "filename") || Parameter(*disposition, "filename*");
    return part;
  }

 private:
  std::string_view Rest() const {
    return std::string_view(reinterpret_cast<const char*>(body_.data()), body_.size()).substr(at_);
  }

  const std::span<std::byte> body_;
  const std::string delimiter_;
  size_t at_ = 0;
};

}  // namespace

Result<std::string> MultipartBoundary(std::string_view content_type) {
  constexpr std::string_view kAnyMultipart = "multipart/";
  std::string_view rest = content_type;
  const std::string_view type = TakeUntil(&rest, ';');
  if (!EqualIgnoringCase(type.substr(0, kAnyMultipart.size()), kAnyMultipart)) return std::string();
  if (!EqualIgnoringCase(type, "multipart/form-data")) {
    return Status::Invalid(fmt::format(
        "header Content-Type is '{}'; of multipart types, only multipart/form-data is served",
        type));
  }
  std::optional<std::string> boundary = Parameter(content_type, "boundary");
  if (!boundary) {
    return Status::Invalid("header Content-Type is multipart/form-data without a boundary");
  }
  if (boundary->empty() || boundary->size() > kMaxBoundaryBytes || boundary->back() == ' ') {
    return Status::Invalid(fmt::format(
        "the boundary in header Content-Type has {} characters; it has to have 1 to {}, and not "
        "end in a blank",
        boundary->size(), kMaxBoundaryBytes));
  }
  return *std::move(boundary);
}

Result<std::vector<FormPart>> ParseMultipart(std::span<std::byte> body, std::string_view boundary,
                                             size_t max_parts) {
  Reader reader(body, boundary);
  EMBERCACHE_RETURN_IF_ERROR(reader.Begin());
  std::vector<FormPart> parts;
  for (;;) {
    EMBERCACHE_ASSIGN_OR_RETURN(const bool at_end, reader.AtEnd());
    if (at_end) return parts;
    if (parts.size() == max_parts) {
      return Status(StatusCode::kResourceExhausted,
                    fmt::format("more than {} parts in a form (--max-items)", max_parts));
    }
    EMBERCACHE_ASSIGN_OR_RETURN(FormPart part, reader.Next());
    parts.push_back(std::move(part));
  }
}

}  // namespace embercache
