#pragma once

#include "embercache/controller.h"

namespace embercache {

// As answers and statistics call it; what was computed has no Source.
inline const char* SourceName(Source source) {
  switch (source) {
    case Source::kLocal:
      return "local";
    case Source::kGlobal:
      return "global";
    case Source::kJoined:
      break;
  }
  return "joined";
}

}  // namespace embercache
