#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "embercache/clock.h"
#include "embercache/status.h"

namespace embercache {

// The ranks of one tensor-parallel group that serve a request together, and have to agree on what
// they found. Rank 0 leads. Every rank calls the same operations in the same order.
class TpGroup {
 public:
  virtual ~TpGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The element-wise minimum over all ranks' values, which are of one length. DeadlineExceeded when
  // not all ranks came in time; Invalid when the lengths differ.
  virtual Result<std::vector<uint8_t>> AllReduceMin(std::span<const uint8_t> values,
                                                    TimePoint deadline) = 0;
};

// `size` ranks in one process, one TpGroup each, for threads of their own.
std::vector<std::shared_ptr<TpGroup>> NewInProcessTpGroup(int size);

// A group whose reduction somebody else does, such as a torch process group behind a callback.
using AllReduceMinCallback = std::function<Result<std::vector<uint8_t>>(
    std::span<const uint8_t> values, TimePoint deadline)>;
std::shared_ptr<TpGroup> NewCallbackTpGroup(int rank, int size, AllReduceMinCallback reduce);

}  // namespace embercache
