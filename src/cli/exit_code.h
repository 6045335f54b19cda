#pragma once

namespace embercache {

// What the program's exit status says.
inline constexpr int kExitFine = 0;
inline constexpr int kExitFailed = 1;  // cannot start, or failed
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNotFound = 3;

}  // namespace embercache
