#include "src/cli/walk_store.h"

#include <fmt/format.h>

#include <string>

#include "src/cli/store_verb.h"

namespace embercache {
namespace {

constexpr size_t kPageObjects = 1000;

}  // namespace

Status WalkStore(EmbeddingStore& store, const std::function<Status(const ListedObject&)>& visit) {
  std::string cursor;
  do {
    const auto page = store.List(cursor, kPageObjects, CallLimits());
    if (page.status().code() == StatusCode::kUnimplemented) {
      return Status::Unimplemented(
          fmt::format("the backend {} cannot list its objects", store.name()));
    }
    if (!page.ok()) return page.status();
    for (const ListedObject& object : page->objects) EMBERCACHE_RETURN_IF_ERROR(visit(object));
    cursor = page->next_cursor;
  } while (!cursor.empty());
  return Status::Ok();
}

}  // namespace embercache
