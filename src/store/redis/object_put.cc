#include "src/store/redis/object_put.h"

// Invariants: chunks carry an expiry from their first byte on, so that a writer that dies leaves
// nothing for good; the transaction that makes the manifest appear is the one that lets its chunks
// live longer than it, and does nothing when another object is there; chunks are removed only by
// who knows that no manifest names them.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "src/store/redis/cluster.h"
#include "src/store/store_call.h"

namespace embercache::redis {
namespace {

// How long chunks wait for their manifest: a while, and a while more for each of them, at a rate
// that any link has.
constexpr uint64_t kUploadMs = 5 * 60 * 1000;
constexpr uint64_t kUploadMsAChunk = 2000;
// How much longer than their manifest chunks live.
constexpr uint64_t kChunkMarginMs = 60 * 1000;

uint64_t Milliseconds(Duration duration) {
  return static_cast<uint64_t>(duration / std::chrono::milliseconds(1));
}

class Put {
 public:
  Put(const PutItem& item, const RedisConfig& config, PutResult& result)
      : name(item.key),
        mode(item.mode),
        bytes(TotalBytes(item.buffers)),
        generation(NewGeneration()),
        item_(item),
        ttl_ms_(Milliseconds(config.ttl)),
        result_(result) {}

  bool done() const { return done_; }
  bool present() const { return done_ && result_.outcome == PutOutcome::kAlreadyPresent; }
  bool chunked() const { return ChunkCount(bytes) > 0; }
  // Nothing can be in the way, so that one SET does it.
  bool one_step() const { return !chunked() && mode == PutMode::kIfAbsent && !torn_; }
  std::vector<std::string> OwnChunks() const {
    return ChunkKeys(name.redis_key, generation, bytes);
  }

  void Finish(PutOutcome outcome) {
    result_.outcome = outcome;
    result_.status = Status::Ok();
    done_ = true;
  }
  void Fail(Status status) {
    result_.outcome = PutOutcome::kFailed;
    result_.status = std::move(status);
    done_ = true;
  }

  // What a first look found. Returns the manifest whose chunks have to be counted.
  std::optional<Head> Look(const FoundHead& found) {
    if (!found.ok()) {
      Fail(found.status());
    } else if (*found && (*found)->kind == HeadKind::kManifest) {
      return **found;
    } else if (*found) {
      Finish(PutOutcome::kAlreadyPresent);
    }
    return std::nullopt;
  }
  // The object there lacks chunks, so it may be replaced.
  void FoundTorn(const ObjectVersion& torn) { torn_ = torn; }

  Wire SetWhole() const;
  Wire SetChunk(uint32_t index) const;
  // For a Guarded: makes the object appear, if it may.
  bool Decide(const FoundHead& found, CommandWriter& commands);
  // After that. Returns true when chunks that were sent are of no use.
  bool Judge(const Guarded& commit);
  // The commit found chunks gone, though it made the manifest appear.
  bool committed_torn() const { return committed_torn_; }
  Head head(HeadKind kind, uint32_t chunk_index = 0) const {
    return {kind, name.check, generation, bytes, chunk_index};
  }

  const ObjectName name;
  const PutMode mode;
  const uint64_t bytes;
  const ObjectVersion generation;

 private:
  enum class Verdict : uint8_t { kWrite, kOurs, kLost, kUnreadable };
  Verdict VerdictOn(const FoundHead& found) const;
  void AddSet(CommandWriter& commands, bool if_absent) const;

  const PutItem& item_;
  const uint64_t ttl_ms_;
  PutResult& result_;
  std::optional<ObjectVersion> torn_;
  Verdict verdict_ = Verdict::kWrite;
  Status unreadable_;
  bool committed_torn_ = false;
  bool done_ = false;
};

using Puts = std::vector<std::unique_ptr<Put>>;

// The value under the key itself: the whole object, or its manifest.
void Put::AddSet(CommandWriter& commands, bool if_absent) const {
  commands.Begin(3 + (if_absent ? 1 : 0) + (ttl_ms_ > 0 ? 2 : 0)).Word("SET").Word(name.redis_key);
  if (chunked()) {
    commands.Word(head(HeadKind::kManifest).Encode(), {});
  } else {
    commands.Word(head(HeadKind::kWhole).Encode(), item_.buffers);
  }
  if (if_absent) commands.Word("NX");
  if (ttl_ms_ > 0) commands.Word("PX").Word(ttl_ms_);
}

Wire Put::SetWhole() const {
  CommandWriter writer;
  AddSet(writer, true);
  return writer.Finish();
}

Wire Put::SetChunk(uint32_t index) const {
  CommandWriter writer;
  writer.Begin(5).Word("SET").Word(ChunkKey(name.redis_key, generation, index));
  writer.Word(head(HeadKind::kChunk, index).Encode(),
              Slice(item_.buffers, index * kChunkBytes, BytesOfChunk(bytes, index)));
  return writer.Word("PX").Word(kUploadMs + ChunkCount(bytes) * kUploadMsAChunk).Finish();
}

Put::Verdict Put::VerdictOn(const FoundHead& found) const {
  if (!found.ok()) {
    // Damaged is what a replacement is for; a later format is not for us to touch.
    const bool damaged = found.status().code() == StatusCode::kCorruption;
    return damaged && mode == PutMode::kReplace ? Verdict::kWrite : Verdict::kUnreadable;
  }
  if (!*found) return Verdict::kWrite;
  // An earlier try was done, and its answer lost.
  if ((*found)->generation == generation) return Verdict::kOurs;
  if (mode == PutMode::kReplace || (*found)->generation == torn_) return Verdict::kWrite;
  return Verdict::kLost;
}

bool Put::Decide(const FoundHead& found, CommandWriter& commands) {
  verdict_ = VerdictOn(found);
  if (verdict_ == Verdict::kUnreadable) unreadable_ = found.status();
  if (verdict_ != Verdict::kWrite) return false;
  AddSet(commands, false);
  for (const std::string& chunk : OwnChunks()) {
    if (ttl_ms_ > 0) {
      commands.Begin(3).Word("PEXPIRE").Word(chunk).Word(ttl_ms_ + kChunkMarginMs);
    } else {
      commands.Add({"PERSIST", chunk});
    }
  }
  if (found.ok() && *found && (*found)->kind == HeadKind::kManifest) {
    AddUnlinkChunks(commands, name, **found);
  }
  return true;
}

bool Put::Judge(const Guarded& commit) {
  switch (commit.outcome()) {
    case Guarded::Outcome::kDone:
      break;
    case Guarded::Outcome::kDeclined:
      if (verdict_ == Verdict::kOurs) {
        Finish(PutOutcome::kStored);
      } else if (verdict_ == Verdict::kLost) {
        Finish(PutOutcome::kAlreadyPresent);
      } else {
        Fail(unreadable_);
      }
      return verdict_ != Verdict::kOurs;
    case Guarded::Outcome::kConflict:
      Fail(commit.status());
      return true;
    case Guarded::Outcome::kFailed: {
      // Where an answer is missing, the manifest may be there; then the chunks are left to expire.
      const StatusCode code = commit.status().code();
      Fail(commit.status());
      return !commit.request.uncertain &&
             (code == StatusCode::kResourceExhausted || code == StatusCode::kCorruption);
    }
  }
  const auto extended = commit.results().begin() + 1;
  committed_torn_ = std::any_of(extended, extended + ChunkCount(bytes),
                                [](const RespValue& result) { return result.integer != 1; });
  if (committed_torn_) {
    Fail(Status{StatusCode::kUnavailable, "the server dropped a part of the object", true});
    return false;
  }
  Finish(PutOutcome::kStored);
  return false;
}

// Ends the puts whose manifests have all their chunks; the other objects may be replaced.
void CountChunks(const Session& session, std::span<Put* const> puts,
                 std::span<const Head> manifests) {
  std::vector<std::unique_ptr<Commands>> counts;
  for (size_t i = 0; i < puts.size(); ++i) {
    const auto chunks =
        ChunkKeys(puts[i]->name.redis_key, manifests[i].generation, manifests[i].object_bytes);
    CommandWriter writer;
    writer.Begin(chunks.size() + 1).Word("TOUCH");
    for (const std::string& chunk : chunks) writer.Word(chunk);
    counts.push_back(std::make_unique<Commands>(puts[i]->name, writer.Finish()));
  }
  session.Run(counts);
  for (size_t i = 0; i < puts.size(); ++i) {
    const Request& request = counts[i]->request;
    if (!request.status.ok()) {
      puts[i]->Fail(request.status);
    } else if (request.replies.front().integer == ChunkCount(manifests[i].object_bytes)) {
      puts[i]->Finish(PutOutcome::kAlreadyPresent);
    } else {
      puts[i]->FoundTorn(manifests[i].generation);
    }
  }
}

// Objects that were put again live on from now.
void Refresh(const Session& session, std::span<Put* const> present) {
  const uint64_t ttl_ms = Milliseconds(session.config.ttl);
  if (ttl_ms == 0) return;
  std::vector<std::unique_ptr<Guarded>> refreshes;
  for (Put* const put : present) {
    refreshes.push_back(std::make_unique<Guarded>(
        put->name, 0, [put, ttl_ms](const FoundHead& found, CommandWriter& commands) {
          if (!found.ok() || !*found) return false;
          for (const std::string& chunk :
               ChunkKeys(put->name.redis_key, (*found)->generation, (*found)->object_bytes)) {
            commands.Begin(3).Word("PEXPIRE").Word(chunk).Word(ttl_ms + kChunkMarginMs);
          }
          commands.Begin(3).Word("PEXPIRE").Word(put->name.redis_key).Word(ttl_ms);
          return true;
        }));
  }
  // Whether it works or not, the objects are there.
  RunGuarded(session, refreshes);
}

// Ends the puts of what is there already, before any payload is sent.
void LookFirst(const Session& session, const Puts& puts) {
  std::vector<std::unique_ptr<HeadRead>> reads;
  std::vector<Put*> looking;
  for (const auto& put : puts) {
    if (put->mode != PutMode::kIfAbsent) continue;
    looking.push_back(put.get());
    reads.push_back(std::make_unique<HeadRead>(put->name));
  }
  session.Run(reads);
  std::vector<Put*> counting;
  std::vector<Head> manifests;
  for (size_t i = 0; i < looking.size(); ++i) {
    if (const auto manifest = looking[i]->Look(reads[i]->found())) {
      counting.push_back(looking[i]);
      manifests.push_back(*manifest);
    }
  }
  CountChunks(session, counting, manifests);
  std::erase_if(looking, [](const Put* put) { return !put->present(); });
  Refresh(session, looking);
}

// A SET whose first answer was lost may have found its own value there.
void SettleUncertain(const Session& session, std::span<Put* const> puts) {
  std::vector<std::unique_ptr<HeadRead>> reads;
  for (Put* const put : puts) reads.push_back(std::make_unique<HeadRead>(put->name));
  session.Run(reads);
  for (size_t i = 0; i < puts.size(); ++i) {
    const FoundHead found = reads[i]->found();
    const bool ours = found.ok() && *found && (*found)->generation == puts[i]->generation;
    puts[i]->Finish(ours ? PutOutcome::kStored : PutOutcome::kAlreadyPresent);
  }
}

// Sends the payload of all that needs no transaction for it: small objects, which are stored with
// that, and chunks. Returns the puts whose chunks are of no use.
std::vector<Put*> Upload(const Session& session, const Puts& puts) {
  std::vector<std::unique_ptr<Commands>> sets;
  std::vector<Put*> owners;
  for (const auto& put : puts) {
    if (put->done()) continue;
    if (put->one_step()) {
      sets.push_back(std::make_unique<Commands>(put->name, put->SetWhole()));
      owners.push_back(put.get());
    }
    for (uint32_t i = 0; i < ChunkCount(put->bytes); ++i) {
      sets.push_back(std::make_unique<Commands>(put->name, put->SetChunk(i)));
      owners.push_back(put.get());
    }
  }
  session.Run(sets);
  std::vector<Put*> uncertain, useless;
  for (size_t i = 0; i < sets.size(); ++i) {
    Put* const put = owners[i];
    const Request& request = sets[i]->request;
    if (!request.status.ok()) {
      if (!put->done() && put->chunked()) useless.push_back(put);
      put->Fail(request.status);
    } else if (put->chunked()) {
      continue;
    } else if (!request.replies.front().IsNull()) {
      put->Finish(PutOutcome::kStored);
    } else if (request.uncertain) {
      uncertain.push_back(put);
    } else {
      put->Finish(PutOutcome::kAlreadyPresent);
    }
  }
  SettleUncertain(session, uncertain);
  return useless;
}

// Removes manifests of ours that lack chunks, unless something else is there by now.
void Retract(const Session& session, std::span<Put* const> torn) {
  std::vector<std::unique_ptr<Guarded>> removals;
  for (Put* const put : torn) {
    removals.push_back(std::make_unique<Guarded>(
        put->name, 0, [put](const FoundHead& found, CommandWriter& commands) {
          if (!found.ok() || !*found || (*found)->generation != put->generation) return false;
          AddUnlink(commands, put->name, **found);
          return true;
        }));
  }
  RunGuarded(session, removals);
}

// Makes what was uploaded appear. Returns the puts whose chunks are of no use.
std::vector<Put*> Commit(const Session& session, const Puts& puts) {
  std::vector<std::unique_ptr<Guarded>> commits;
  std::vector<Put*> owners;
  for (const auto& put : puts) {
    if (put->done()) continue;
    owners.push_back(put.get());
    commits.push_back(std::make_unique<Guarded>(
        put->name, put->chunked() ? 0 : put->bytes,
        [put = put.get()](const FoundHead& found, CommandWriter& commands) {
          return put->Decide(found, commands);
        }));
  }
  RunGuarded(session, commits);
  std::vector<Put*> useless, torn;
  for (size_t i = 0; i < owners.size(); ++i) {
    if (owners[i]->Judge(*commits[i]) && owners[i]->chunked()) useless.push_back(owners[i]);
    if (owners[i]->committed_torn()) torn.push_back(owners[i]);
  }
  Retract(session, torn);
  return useless;
}

void RemoveChunks(const Session& session, std::span<Put* const> puts) {
  std::vector<std::unique_ptr<Commands>> removals;
  for (Put* const put : puts) {
    CommandWriter writer;
    AddUnlinkChunks(writer, put->name, put->head(HeadKind::kManifest));
    removals.push_back(std::make_unique<Commands>(put->name, writer.Finish()));
  }
  // What this does not reach expires.
  session.Run(removals);
}

}  // namespace

void PutObjects(const Session& session, std::span<const PutItem> items,
                std::span<const size_t> open, std::vector<PutResult>& results) {
  Puts puts;
  for (const size_t i : open) {
    puts.push_back(std::make_unique<Put>(items[i], session.config, results[i]));
    if (puts.back()->bytes > session.config.max_value_bytes) {
      puts.back()->Fail(
          Status::Invalid(fmt::format("redis: an object of {} bytes; max_value_bytes allows {}",
                                      puts.back()->bytes, session.config.max_value_bytes)));
      puts.pop_back();
    }
  }
  LookFirst(session, puts);
  std::vector<Put*> useless = Upload(session, puts);
  const std::vector<Put*> lost = Commit(session, puts);
  useless.insert(useless.end(), lost.begin(), lost.end());
  RemoveChunks(session, useless);
}

}  // namespace embercache::redis
