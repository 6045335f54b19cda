#include "src/server/version.h"

namespace embercache {

std::string_view Version() {
  return EMBERCACHE_VERSION;
}

}  // namespace embercache
