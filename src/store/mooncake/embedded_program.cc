#include "src/store/mooncake/embedded_program.h"

// EMBERCACHE_BRIDGE_PROGRAM: the file.
asm(".pushsection .rodata\n"
    ".globl embercache_bridge_program\n"
    ".hidden embercache_bridge_program\n"
    ".globl embercache_bridge_program_end\n"
    ".hidden embercache_bridge_program_end\n"
    "embercache_bridge_program:\n"
    ".incbin \"" EMBERCACHE_BRIDGE_PROGRAM
    "\"\n"
    "embercache_bridge_program_end:\n"
    ".popsection\n");

extern "C" {
[[gnu::visibility("hidden")]] extern const char embercache_bridge_program[];
[[gnu::visibility("hidden")]] extern const char embercache_bridge_program_end[];
}

namespace embercache::mooncake {

std::string_view BridgeProgram() {
  return {embercache_bridge_program, embercache_bridge_program_end};
}

}  // namespace embercache::mooncake
