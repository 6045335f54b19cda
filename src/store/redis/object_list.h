#pragma once

#include <string_view>

#include "src/store/redis/stored_value.h"

namespace embercache::redis {

// A page of the objects on all servers. Other keys of the database are passed over; a page may be
// short, or empty, before the end. An object may come twice where the server's table changes its
// size during the walk.
Result<ListPage> ListObjects(const Session& session, std::string_view cursor, size_t limit);

}  // namespace embercache::redis
