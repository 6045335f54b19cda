#pragma once

#include <string_view>

namespace embercache::mooncake {

// The Python program that drives the wheel: wheel_bridge.py, which travels in this program, so that
// there is no file to look for.
std::string_view WheelScript();

}  // namespace embercache::mooncake
