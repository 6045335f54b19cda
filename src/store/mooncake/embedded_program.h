#pragma once

#include <string_view>

namespace embercache::mooncake {

// bridge_program.cc, linked: it travels in this program, so that there is no file to look for.
std::string_view BridgeProgram();

}  // namespace embercache::mooncake
