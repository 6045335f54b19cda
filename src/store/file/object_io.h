#pragma once

#include <cstdint>
#include <span>

#include "embercache/clock.h"
#include "embercache/status.h"
#include "embercache/store.h"

namespace embercache {

// Both go around the page cache where that is faster and possible: from kDirectBytes on, with
// buffers whose addresses and sizes are multiples of 4096, and, for reads, from where the file is
// not in the cache already. Between chunks they look at the context. DeadlineExceeded, Cancelled,
// or what the system call said.
inline constexpr size_t kDirectBytes = 512UL << 10;
// Bytes of one system call: what a slow disk moves between two looks at the deadline.
inline constexpr size_t kChunkBytes = 8UL << 20;

// How bytes go between memory and file.
enum class IoWay : uint8_t {
  kCached,    // from the page cache as long as they lie there, then kDirect
  kDirect,    // around the page cache; the descriptor is O_DIRECT
  kBuffered,  // through it
};

// The way for a read of the whole file into the buffers; makes the descriptor fit it.
IoWay PrepareRead(int fd, std::span<const MutableBuffer> buffers);

// Fills the item's buffers, one after the other, from the start of the file, on the way prepared,
// and says under `index` how far it is. Corruption when the file ends first.
Status ReadObject(int fd, IoWay way, const GetItem& item, size_t index, const CallContext& context,
                  const Clock& clock);

// Writes the buffers, one after the other, from the start of the file.
Status WriteObject(int fd, std::span<const ConstBuffer> buffers, const CallContext& context,
                   const Clock& clock);

}  // namespace embercache
