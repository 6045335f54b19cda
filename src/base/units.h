#pragma once

// The one place where sizes and durations are read from text.

#include <cstdint>
#include <string>
#include <string_view>

#include "embercache/clock.h"
#include "embercache/status.h"

namespace embercache {

// "4096", "512KiB", "10GiB", "4GB", "1.5GB", "10 gib": bytes. Units B, KB, MB, GB, TB (powers of
// 1000) and KiB, MiB, GiB, TiB (powers of 1024), in any case, "kb" being 1000. Invalid names what
// was given and what would be right.
Result<uint64_t> ParseBytes(std::string_view text);

// "500ms", "2s", "5m", "1h", "10us": a duration. A number without a unit is refused.
Result<Duration> ParseDuration(std::string_view text);

// "1.5 GiB", "4096 B": for people.
std::string FormatBytes(uint64_t bytes);

}  // namespace embercache
