#pragma once

#include <cerrno>
#include <string_view>

#include "embercache/status.h"

namespace embercache {

// Status::FromErrno for calls on a store's folder: ResourceExhausted is a disk that is full, and
// AlreadyExists and NotFound are about names; all else is Unavailable, for there is nothing that
// the caller got wrong and no deadline of his.
inline Status IoError(int error, std::string_view what) {
  Status status = Status::FromErrno(error, what);
  switch (error) {
    case EEXIST:
    case EDQUOT:
    case ENOENT:
    case ENOSPC:
      return status;
    default:
      return Status::Unavailable(status.message());
  }
}

}  // namespace embercache
