#pragma once

#include "embercache/store.h"

namespace embercache {

// As answers, statistics and Python call it.
inline const char* StateName(StoreState state) {
  switch (state) {
    case StoreState::kUp:
      return "up";
    case StoreState::kStarting:
      return "starting";
    case StoreState::kDown:
      break;
  }
  return "down";
}

}  // namespace embercache
