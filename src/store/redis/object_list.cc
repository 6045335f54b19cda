#include "src/store/redis/object_list.h"

// A cursor is: the server's place in the list, its SCAN cursor, '\n' after each, and the names that
// the last SCAN gave beyond the page, each with its length before it.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <deque>
#include <memory>
#include <set>

namespace embercache::redis {
namespace {

constexpr int kMaxScansAPage = 64;
constexpr std::string_view kStart = "start";  // of a server; its end is "0"

struct Walk {
  size_t server = 0;
  std::string scan = std::string(kStart);
  std::deque<std::string> names;  // found, not yet given

  std::string Encode() const {
    std::string text = fmt::format("{}\n{}\n", server, scan);
    for (const std::string& name : names) text += fmt::format("{}\n{}", name.size(), name);
    return text;
  }
};

bool TakeLine(std::string_view& text, std::string_view& line) {
  const size_t end = text.find('\n');
  if (end == text.npos) return false;
  line = text.substr(0, end);
  text.remove_prefix(end + 1);
  return true;
}

bool TakeNumber(std::string_view& text, size_t& number) {
  std::string_view line;
  if (!TakeLine(text, line)) return false;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  return error == std::errc() && end == line.data() + line.size();
}

Result<Walk> Decode(std::string_view text) {
  Walk walk;
  if (text.empty()) return walk;
  const Status bad = Status::Invalid("a list cursor that this backend did not give");
  std::string_view scan;
  if (!TakeNumber(text, walk.server) || !TakeLine(text, scan)) return bad;
  walk.scan = scan;
  while (!text.empty()) {
    size_t length = 0;
    if (!TakeNumber(text, length) || length > text.size()) return bad;
    walk.names.emplace_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return walk;
}

Status Scan(const Session& session, const std::string& server, size_t limit, Walk& walk) {
  Request request;
  request.server = server;
  CommandWriter writer;
  const uint64_t count = std::clamp<size_t>(limit, 10, 1000);
  writer.Begin(4).Word("SCAN").Word(walk.scan == kStart ? "0" : walk.scan);
  request.wire = writer.Word("COUNT").Word(count).Finish();
  Request* const requests[] = {&request};
  session.client.Run(requests, session.context);
  EMBERCACHE_RETURN_IF_ERROR(request.status);
  const RespValue& reply = request.replies.front();
  if (reply.elements.size() != 2) return Status::Unavailable("an answer to SCAN that is no pair");
  walk.scan = reply.elements[0].text;
  std::set<std::string> seen;
  for (const RespValue& name : reply.elements[1].elements) {
    if (KeyOfRedisKey(name.text) && seen.insert(name.text).second) walk.names.push_back(name.text);
  }
  return Status::Ok();
}

// Takes up to `limit` names off the walk, and adds those that are objects.
Status Describe(const Session& session, size_t limit, Walk& walk, ListPage& page) {
  std::vector<std::string> keys;
  std::vector<std::unique_ptr<HeadRead>> reads;
  while (!walk.names.empty() && reads.size() < limit) {
    keys.push_back(*KeyOfRedisKey(walk.names.front()));
    reads.push_back(std::make_unique<HeadRead>(ObjectName(keys.back())));
    walk.names.pop_front();
  }
  session.Run(reads);
  for (size_t i = 0; i < reads.size(); ++i) {
    const FoundHead found = reads[i]->found();
    // Corruption: a key of someone else's.
    if (!found.ok() && found.status().code() != StatusCode::kCorruption &&
        found.status().code() != StatusCode::kUnimplemented) {
      return found.status();
    }
    if (found.ok() && *found) page.objects.push_back({keys[i], (*found)->object_bytes});
  }
  return Status::Ok();
}

}  // namespace

Result<ListPage> ListObjects(const Session& session, std::string_view cursor, size_t limit) {
  EMBERCACHE_ASSIGN_OR_RETURN(Walk walk, Decode(cursor));
  const std::vector<std::string> servers = session.client.state().servers;
  ListPage page;
  for (int scans = 0; page.objects.size() < limit;) {
    if (!walk.names.empty()) {
      EMBERCACHE_RETURN_IF_ERROR(Describe(session, limit - page.objects.size(), walk, page));
      continue;
    }
    if (walk.scan == "0") {
      ++walk.server;
      walk.scan = kStart;
    }
    if (walk.server >= servers.size()) return page;
    if (scans++ == kMaxScansAPage) break;
    EMBERCACHE_RETURN_IF_ERROR(Scan(session, servers[walk.server], limit, walk));
  }
  page.next_cursor = walk.Encode();
  return page;
}

}  // namespace embercache::redis
