#include "src/store/redis/stored_value.h"

#include <algorithm>
#include <utility>

#include "src/store/redis/cluster.h"

namespace embercache::redis {
namespace {

constexpr int kMaxConflicts = 8;
constexpr size_t kLastHeadByte = kHeadBytes - 1;

FoundHead DecodeFor(uint64_t check, std::span<const std::byte> bytes) {
  EMBERCACHE_ASSIGN_OR_RETURN(const Head head, Head::Decode(bytes));
  if (head.key_check != check) return Status::Corruption("the value belongs to another key");
  return std::optional(head);
}

// The answer to GETRANGE, which gives an empty text where there is nothing.
FoundHead DecodeText(uint64_t check, const RespValue& reply) {
  if (reply.text.empty()) return std::optional<Head>();
  FoundHead found = DecodeFor(check, std::as_bytes(std::span(reply.text)));
  if (found.ok() && (*found)->kind == HeadKind::kChunk) {
    return Status::Corruption("a chunk lies where an object should");
  }
  return found;
}

CommandWriter& AddReadHead(CommandWriter& writer, std::string_view redis_key) {
  return writer.Begin(4).Word("GETRANGE").Word(redis_key).Word(uint64_t{0}).Word(kLastHeadByte);
}

void AddUnlinkKeys(CommandWriter& commands, const std::vector<std::string>& keys) {
  commands.Begin(keys.size() + 1).Word("UNLINK");
  for (const std::string& key : keys) commands.Word(key);
}

}  // namespace

ObjectName::ObjectName(std::string_view key)
    : redis_key(RedisKey(key)), check(KeyCheck(key)), slot(SlotOf(redis_key)) {}

HeadRead::HeadRead(const ObjectName& name) : check(name.check) {
  CommandWriter writer;
  request.slot = name.slot;
  request.wire = AddReadHead(writer, name.redis_key).Finish();
}

FoundHead HeadRead::found() const {
  if (!request.status.ok()) return request.status;
  return DecodeText(check, request.replies.front());
}

ValueRead::ValueRead(std::string_view redis_key, const ObjectName& name,
                     std::vector<MutableBuffer> payload)
    : check(name.check) {
  payload.insert(payload.begin(), MutableBuffer(head));
  request.slot = name.slot;
  for (const MutableBuffer& buffer : payload) request.reply_bytes += buffer.size();
  request.target.emplace();
  request.target->buffers = std::move(payload);
  CommandWriter writer;
  request.wire = writer.Add({"GET", redis_key}).Finish();
}

FoundHead ValueRead::found() const {
  if (!request.status.ok()) return request.status;
  if (!request.target->present) return std::optional<Head>();
  const size_t bytes = std::min<uint64_t>(request.target->received_bytes, kHeadBytes);
  return DecodeFor(check, std::span(head).first(bytes));
}

Commands::Commands(const ObjectName& name, Wire wire) {
  request.lane = Lane::kWrite;
  request.slot = name.slot;
  request.wire = std::move(wire);
}

Guarded::Guarded(const ObjectName& name, uint64_t payload_bytes, Decide decide)
    : check_(name.check), decide_(std::move(decide)) {
  request.lane = Lane::kTransaction;
  request.slot = name.slot;
  request.reply_bytes = payload_bytes;
  CommandWriter writer;
  writer.Add({"WATCH", name.redis_key});
  request.wire = AddReadHead(writer, name.redis_key).Finish();
  request.second_step = [this](const std::vector<RespValue>& replies) {
    return SecondStep(replies);
  };
}

Wire Guarded::SecondStep(const std::vector<RespValue>& replies) {
  CommandWriter writer;
  writer.Add({"MULTI"});
  declined_ = !decide_(DecodeText(check_, replies[1]), writer);
  if (!declined_) return writer.Add({"EXEC"}).Finish();
  CommandWriter nothing;
  return nothing.Add({"UNWATCH"}).Finish();
}

void Guarded::Judge() {
  if (!request.status.ok()) {
    outcome_ = Outcome::kFailed;
  } else if (declined_) {
    outcome_ = Outcome::kDeclined;
  } else if (request.replies.back().IsNull()) {
    outcome_ = Outcome::kConflict;
  } else {
    const auto error = std::find_if(results().begin(), results().end(),
                                    [](const RespValue& result) { return result.IsError(); });
    outcome_ = error == results().end() ? Outcome::kDone : Outcome::kFailed;
    if (error != results().end()) request.status = StatusOfError(error->text);
  }
}

Status Guarded::status() const {
  if (outcome_ == Outcome::kConflict) {
    return Status::Unavailable("other writers changed the object each time this one tried");
  }
  return request.status;
}

void AddUnlink(CommandWriter& commands, const ObjectName& name, const Head& head) {
  std::vector<std::string> keys = ChunkKeys(name.redis_key, head.generation, head.object_bytes);
  keys.push_back(name.redis_key);
  AddUnlinkKeys(commands, keys);
}

void AddUnlinkChunks(CommandWriter& commands, const ObjectName& name, const Head& head) {
  AddUnlinkKeys(commands, ChunkKeys(name.redis_key, head.generation, head.object_bytes));
}

void RunGuarded(const Session& session, std::span<const std::unique_ptr<Guarded>> operations) {
  std::vector<Guarded*> open;
  for (const std::unique_ptr<Guarded>& operation : operations) open.push_back(operation.get());
  for (int attempt = 0; attempt < kMaxConflicts && !open.empty(); ++attempt) {
    session.Run(open);
    for (Guarded* const operation : open) operation->Judge();
    std::erase_if(open, [](const Guarded* operation) {
      return operation->outcome() != Guarded::Outcome::kConflict;
    });
  }
}

}  // namespace embercache::redis
