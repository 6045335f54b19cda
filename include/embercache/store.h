#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "embercache/buffer.h"
#include "embercache/clock.h"
#include "embercache/status.h"

namespace embercache {

// The longest key.
inline constexpr size_t kMaxKeyBytes = 512;

// What tells one object under a key from the next one under the same key: inode and times of a
// file, the generation of a Redis object. Opaque; equality is all that it is for.
struct ObjectVersion {
  uint64_t high = 0;
  uint64_t low = 0;
  bool operator==(const ObjectVersion&) const = default;
};

// What goes with one call: its limits, and who wants to know how far it is.
struct CallContext {
  // The store should answer by then with DeadlineExceeded for what is not done. It is a request: a
  // caller that must not wait longer has to stop waiting by itself, and must keep the buffers
  // alive and unused until the call has returned.
  TimePoint deadline = TimePoint::max();
  // When set and true, the store should answer Cancelled for what is not done. May be null.
  const std::atomic<bool>* cancelled = nullptr;
  // When set, a get may say that the first `bytes` bytes of an item's buffers have come, and will
  // stay if the item is a hit, so that they are looked at while they are warm and others are on
  // their way. Fewer bytes than before take back what was said before. Only on the calling thread,
  // within the call; must not throw. May be null. A store that wraps another one and changes items,
  // results or bytes gives none to that one.
  const std::function<void(size_t item, uint64_t bytes)>* received = nullptr;
};

enum class GetOutcome : uint8_t {
  kHit,        // the object's bytes fill the buffers exactly
  kMiss,       // there is no object under the key
  kWrongSize,  // there is one, of another size than the buffers' sum; their content is undefined
  kFailed,     // see status; the buffers' content is undefined
};

struct GetItem {
  std::string_view key;
  // Filled one after the other. Their sum has to be the object's size.
  std::span<const MutableBuffer> buffers;
};

struct GetResult {
  GetOutcome outcome = GetOutcome::kFailed;
  // kHit: the object's size. kWrongSize: its size where the backend can tell without another
  // request, else 0 (ask BatchStat).
  uint64_t bytes = 0;
  // Of the object that was read, where the backend has versions.
  std::optional<ObjectVersion> version;
  Status status;
};

enum class PutMode : uint8_t {
  kIfAbsent,  // what is there stays
  kReplace,   // what is there is replaced as one: readers see the old object or the new one
};

enum class PutOutcome : uint8_t {
  kStored,          // this call's bytes are readable
  kAlreadyPresent,  // the key had an object; nothing was written (its age may be refreshed)
  kAccepted,        // one of the two above; the backend cannot tell which
  kFailed,  // see status; nothing of this call is readable under the key, unless the code is
            // DeadlineExceeded or Unavailable: then whole or not at all, unknown which
};

struct PutItem {
  std::string_view key;
  std::span<const ConstBuffer> buffers;
  PutMode mode = PutMode::kIfAbsent;
};

struct PutResult {
  PutOutcome outcome = PutOutcome::kFailed;
  Status status;
};

struct StatResult {
  // OK and found, OK and not found (a miss), or not OK (unknown).
  Status status;
  bool found = false;
  uint64_t bytes = 0;
  std::optional<ObjectVersion> version;
};

enum class RemoveOutcome : uint8_t {
  kRemoved,
  kAbsent,   // nothing was there
  kChanged,  // another version than the one named is there; it stays
  kFailed,   // see status
};

struct RemoveItem {
  std::string_view key;
  // Remove only this version. Backends without versions answer kFailed with Unimplemented.
  std::optional<ObjectVersion> version;
};

struct RemoveResult {
  RemoveOutcome outcome = RemoveOutcome::kFailed;
  Status status;
};

struct ListedObject {
  // What BatchStat, gets and Remove take as a key. It need not be the key that was put: a backend
  // that cannot recover it gives an id of its own that works in its place.
  std::string id;
  uint64_t bytes = 0;
};

struct ListPage {
  std::vector<ListedObject> objects;
  // Give it to the next List call; empty when there is no more.
  std::string next_cursor;
};

enum class StoreState : uint8_t { kUp, kStarting, kDown };

struct StoreHealth {
  StoreState state = StoreState::kStarting;
  // For people: what it is connected to, or what is wrong.
  std::string detail;
};

// A shared store of opaque objects under key texts. Namespaces, envelopes and verification are
// above it, in GlobalCache; a backend stores bytes.
//
// Thread-safe: any method may be called from any thread at any time, Close included. No method
// throws. A batch call gives exactly one result an item, in the items' order; an item's failure
// leaves the others alone. The same key twice in one batch is allowed: gets answer both, of puts
// the first counts and the others answer kAlreadyPresent (kReplace: the last one's bytes stay).
// Keys are 1 to kMaxKeyBytes bytes, any byte values; two different keys never meet, and no key
// reaches outside the store. Empty or longer keys answer Invalid.
class EmbeddingStore {
 public:
  virtual ~EmbeddingStore() = default;

  // The backend's name, as in --mm-global-cache-backend and in metrics.
  virtual std::string_view name() const = 0;

  // Presence is a hint, never a promise. Default: by BatchStat.
  virtual std::vector<StatResult> BatchIsExist(std::span<const std::string_view> keys,
                                               const CallContext& context) {
    return BatchStat(keys, context);
  }
  virtual std::vector<StatResult> BatchStat(std::span<const std::string_view> keys,
                                            const CallContext& context) = 0;

  // Straight into, and out of, the caller's memory.
  virtual std::vector<GetResult> BatchGetIntoMultiBuffers(std::span<const GetItem> items,
                                                          const CallContext& context) = 0;
  virtual std::vector<PutResult> BatchPutFromMultiBuffers(std::span<const PutItem> items,
                                                          const CallContext& context) = 0;

  // One contiguous buffer an item: the calls above with one buffer each.
  // REQUIRES: keys.size() == buffers.size().
  std::vector<GetResult> BatchGet(std::span<const std::string_view> keys,
                                  std::span<const MutableBuffer> buffers,
                                  const CallContext& context);
  std::vector<PutResult> BatchPut(std::span<const std::string_view> keys,
                                  std::span<const ConstBuffer> buffers, const CallContext& context);

  virtual std::vector<RemoveResult> BatchRemove(std::span<const RemoveItem> items,
                                                const CallContext& context) = 0;

  // Up to `limit` objects from `cursor` on (empty: from the start). Objects that come and go during
  // a walk may be missed or seen; all others are seen once. Unimplemented where a backend cannot.
  virtual Result<ListPage> List(std::string_view cursor, size_t limit, const CallContext& context);

  // Announces memory before its first use, for backends that need to; others ignore it.
  virtual Status RegisterBuffer(const BufferRegion& region);
  virtual Status UnregisterBuffer(const BufferRegion& region);

  // The key text of a caller's name for an item: "emb_<hash>".
  virtual std::string GetKey(std::string_view hash) const;

  // What is known now; never blocks on the network.
  virtual StoreHealth Health() = 0;

  // Another number than before when the store may have lost what it said to hold: its connection
  // was lost, it was started again. Never blocks.
  virtual uint64_t Era() const { return 0; }

  // How long an object lives after its key was last put, where that is limited.
  virtual Duration TimeToLive() const { return Duration::max(); }

  // A line or an object of JSON for /v1/stats: what is in use, without secrets. "{}" by default.
  virtual std::string DescribeJson() const { return "{}"; }

  // Stops taking calls (they answer Cancelled), waits for those in flight until `deadline`, and
  // lets resources go. DeadlineExceeded when calls were still running; they end by themselves.
  // Idempotent.
  virtual Status Close(TimePoint deadline) = 0;
};

}  // namespace embercache
