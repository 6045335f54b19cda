#include "src/store/redis/object_get.h"

// Invariant: a hit rests on heads alone: one whole value of the key, or a manifest and every chunk
// of its generation, each of its exact length and with its own index.

#include <algorithm>
#include <memory>
#include <utility>

#include "src/store/store_call.h"

namespace embercache::redis {
namespace {

// A reader that loses to a writer this often gives up.
constexpr int kMaxRounds = 16;

struct Reading {
  Reading(size_t index_in_batch, const GetItem& of)
      : index(index_in_batch), item(of), name(of.key), bytes(TotalBytes(of.buffers)) {}

  const size_t index;
  const GetItem& item;
  const ObjectName name;
  const uint64_t bytes;
  std::unique_ptr<ValueRead> value;
  std::vector<std::unique_ptr<ValueRead>> chunks;
  Head manifest;
  uint32_t chunks_in_place = 0;  // of those from the first on
};

using Readings = std::vector<std::unique_ptr<Reading>>;

// True when the result is known; false when the chunks of `manifest` have to be read.
bool JudgeValue(Reading& reading, GetResult& result) {
  const FoundHead found = reading.value->found();
  if (!found.ok()) {
    result.status = found.status();
    return true;
  }
  if (!*found) {
    result.outcome = GetOutcome::kMiss;
    return true;
  }
  const Head& head = **found;
  const uint64_t payload = head.kind == HeadKind::kWhole ? head.object_bytes : 0;
  if (head.kind == HeadKind::kChunk || reading.value->payload_bytes() != payload) {
    result.status = Status::Corruption("the value has another length than its head says");
    return true;
  }
  result.version = head.generation;
  result.bytes = head.object_bytes;
  if (head.object_bytes != reading.bytes) {
    result.outcome = GetOutcome::kWrongSize;
    return true;
  }
  if (head.kind == HeadKind::kWhole) {
    result.outcome = GetOutcome::kHit;
    return true;
  }
  reading.manifest = head;
  return false;
}

void ReadValues(const Session& session, const Readings& readings) {
  std::vector<ValueRead*> reads;
  for (const auto& reading : readings) {
    const bool may_be_whole = reading->bytes <= kMaxWholeBytes;
    const std::span<const MutableBuffer> buffers = reading->item.buffers;
    reading->value = std::make_unique<ValueRead>(
        reading->name.redis_key, reading->name,
        may_be_whole ? std::vector(buffers.begin(), buffers.end()) : std::vector<MutableBuffer>());
    reading->value->request.answered = [&session, &reading = *reading] {
      GetResult result;
      const bool is_hit = JudgeValue(reading, result) && result.outcome == GetOutcome::kHit;
      TellReceived(session.context, reading.index, is_hit ? reading.bytes : 0);
    };
    reads.push_back(reading->value.get());
  }
  session.Run(reads);
}

bool ChunkFits(const ValueRead& read, const Head& manifest, uint32_t index) {
  Head expected = manifest;
  expected.kind = HeadKind::kChunk;
  expected.chunk_index = index;
  const FoundHead found = read.found();
  return found.ok() && *found == expected &&
         read.payload_bytes() == BytesOfChunk(manifest.object_bytes, index);
}

// Chunks come in any order; who waits for the bytes wants them from the first on.
void TellChunks(const Session& session, Reading& reading) {
  while (reading.chunks_in_place < reading.chunks.size()) {
    const ValueRead& next = *reading.chunks[reading.chunks_in_place];
    if (!next.request.notes.done || !ChunkFits(next, reading.manifest, reading.chunks_in_place)) {
      return;
    }
    ++reading.chunks_in_place;
    TellReceived(session.context, reading.index,
                 std::min(reading.bytes, reading.chunks_in_place * kChunkBytes));
  }
}

void ReadChunks(const Session& session, const Readings& readings) {
  std::vector<ValueRead*> reads;
  for (const auto& reading : readings) {
    reading->chunks.clear();
    reading->chunks_in_place = 0;
    for (uint32_t i = 0; i < ChunkCount(reading->bytes); ++i) {
      reading->chunks.push_back(std::make_unique<ValueRead>(
          ChunkKey(reading->name.redis_key, reading->manifest.generation, i), reading->name,
          Slice(reading->item.buffers, i * kChunkBytes, BytesOfChunk(reading->bytes, i))));
      reading->chunks.back()->request.answered = [&session, &reading = *reading] {
        TellChunks(session, reading);
      };
      reads.push_back(reading->chunks.back().get());
    }
  }
  session.Run(reads);
}

// True when the result is known; false when the object is not whole.
bool JudgeChunks(const Reading& reading, GetResult& result) {
  bool whole = true;
  for (uint32_t i = 0; i < reading.chunks.size(); ++i) {
    const ValueRead& read = *reading.chunks[i];
    if (!read.request.status.ok()) {
      result = {};
      result.status = read.request.status;
      return true;
    }
    whole &= ChunkFits(read, reading.manifest, i);
  }
  if (whole) result.outcome = GetOutcome::kHit;
  return whole;
}

// Removes what is left of objects that are not whole, unless they were replaced meanwhile; returns
// those that were.
Readings RemoveTorn(const Session& session, Readings torn, std::vector<GetResult>& results) {
  std::vector<std::unique_ptr<Guarded>> removals;
  std::vector<char> replaced(torn.size(), 0);
  for (size_t i = 0; i < torn.size(); ++i) {
    removals.push_back(std::make_unique<Guarded>(
        torn[i]->name, 0,
        [&reading = *torn[i], &changed = replaced[i]](const FoundHead& found,
                                                      CommandWriter& commands) {
          changed = found.ok() && *found && (*found)->generation != reading.manifest.generation;
          if (!found.ok() || !*found || changed) return false;
          AddUnlink(commands, reading.name, **found);
          return true;
        }));
  }
  RunGuarded(session, removals);
  Readings again;
  for (size_t i = 0; i < torn.size(); ++i) {
    results[torn[i]->index] = {};
    results[torn[i]->index].outcome = GetOutcome::kMiss;
    const bool conflict = removals[i]->outcome() == Guarded::Outcome::kConflict;
    if (replaced[i] || conflict) again.push_back(std::move(torn[i]));
  }
  return again;
}

}  // namespace

void GetObjects(const Session& session, std::span<const GetItem> items, std::vector<size_t> open,
                std::vector<GetResult>& results) {
  Readings readings;
  for (const size_t i : open) readings.push_back(std::make_unique<Reading>(i, items[i]));
  for (int round = 0; round < kMaxRounds && !readings.empty(); ++round) {
    const auto result_of = [&](const auto& reading) -> GetResult& {
      return results[reading->index];
    };
    for (const auto& reading : readings) result_of(reading) = {};
    ReadValues(session, readings);
    std::erase_if(readings, [&](auto& r) { return JudgeValue(*r, result_of(r)); });
    ReadChunks(session, readings);
    std::erase_if(readings, [&](auto& r) { return JudgeChunks(*r, result_of(r)); });
    if (!readings.empty()) readings = RemoveTorn(session, std::move(readings), results);
  }
  for (const auto& reading : readings) {
    results[reading->index] = {};
    results[reading->index].status =
        Status::Unavailable("the object was replaced each time it was read");
  }
}

}  // namespace embercache::redis
