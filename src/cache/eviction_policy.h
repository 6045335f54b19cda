#pragma once

#include <boost/intrusive/list.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "embercache/clock.h"

namespace embercache {

// What a policy knows of an entry. Entries derive from it.
struct EvictionNode : public boost::intrusive::list_base_hook<> {
  uint64_t bytes = 0;
  // Encoder milliseconds that the entry saves a hit; 0 when not known.
  double cost_ms = 0;
  uint32_t uses = 0;
  TimePoint last_used;
  // The policy's own.
  size_t slot = 0;
};

// Chooses what to evict among the entries of one pool that are ready and unpinned: it holds exactly
// those. Called under the cache's lock: no blocking, no allocation beyond amortised growth.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  // An entry was unpinned, or became ready unpinned.
  virtual void Add(EvictionNode& node) = 0;
  // It was pinned, removed or evicted. REQUIRES: it is held.
  virtual void Remove(EvictionNode& node) = 0;
  // Which to evict next; it stays held. Null when none is held.
  virtual EvictionNode* Victim(TimePoint now) = 0;
  virtual size_t size() const = 0;
};

enum class EvictionKind : uint8_t {
  kLru,
  // Of 16 sampled entries the one with the largest age / (1 + uses) · bytes / cost: cheap, large,
  // long unused. Source: the comparison in docs/performance.md.
  kSampledCost,
};

// `seed` makes the sampling repeatable.
std::unique_ptr<EvictionPolicy> NewEvictionPolicy(EvictionKind kind, uint64_t seed);

}  // namespace embercache
