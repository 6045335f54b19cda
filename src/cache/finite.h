#pragma once

#include <span>

#include "embercache/buffer.h"
#include "embercache/dtype.h"

namespace embercache {

// Whether any element is NaN or Inf. False for integer types. REQUIRES: no element crosses from one
// buffer to the next, and each buffer is aligned for the type.
bool HasNonFinite(std::span<const ConstBuffer> buffers, DType dtype);

}  // namespace embercache
