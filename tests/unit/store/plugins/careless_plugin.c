/* The example plugin with a fault of the kind that people make; CARELESS says which. */

#include <string.h>

#define FORGETS 1 /* the last 64 bytes of a copy of 1 MiB or more */
#define HANGS 2   /* removals are never done */

static void* copy(void* to, const void* from, size_t size) {
  return memcpy(to, from, CARELESS == FORGETS && size >= 1u << 20 ? size - 64 : size);
}

#define memcpy copy
#define embercache_store_plugin example_plugin
#include "examples/store_plugin/memory_plugin.c"
#undef embercache_store_plugin

static void hang(void* self, const embercache_remove_item* items, embercache_result* results,
                 size_t count, const embercache_batch* batch) {
  (void)self, (void)items, (void)results, (void)count, (void)batch;
}

const embercache_store_plugin_table* embercache_store_plugin(void) {
  static embercache_store_plugin_table table;
  table = *example_plugin();
  if (CARELESS == HANGS) table.remove = hang;
  return &table;
}
