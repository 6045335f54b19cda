/* A plugin that is wrong in the way that BROKEN says. */

#include <stdio.h>
#include <string.h>

#include "embercache/store_plugin.h"

#define NO_ENTRY_POINT 1
#define NO_TABLE 2
#define OTHER_VERSION 3
#define SHORT_TABLE 4
#define NO_GET 5
#define OPEN_FAILS 6
#define OPENS_NOTHING 7
#define LIES 8

static int a_store;

static int32_t open_store(const char* config, void** store,
                          char message[EMBERCACHE_STORE_MESSAGE_BYTES]) {
  (void)config;
  if (BROKEN == OPEN_FAILS) {
    snprintf(message, EMBERCACHE_STORE_MESSAGE_BYTES, "no such cluster");
    return EMBERCACHE_UNAVAILABLE;
  }
  if (BROKEN != OPENS_NOTHING) *store = &a_store;
  return EMBERCACHE_OK;
}

static void close_store(void* store) {
  (void)store;
}

/* A hit that is said to be smaller than what was asked for. */
static void get(void* store, const embercache_get_item* items, embercache_result* results,
                size_t count, const embercache_batch* batch) {
  (void)store;
  for (size_t i = 0; i < count; ++i) {
    results[i].outcome = EMBERCACHE_HIT;
    results[i].bytes = items[i].buffers[0].size / 2;
  }
  batch->done(batch);
}

/* An outcome that no put has. */
static void put(void* store, const embercache_put_item* items, embercache_result* results,
                size_t count, const embercache_batch* batch) {
  (void)store;
  (void)items;
  for (size_t i = 0; i < count; ++i) results[i].outcome = 77;
  batch->done(batch);
}

/* A failure of an unknown code, with a message that has no end. */
static void stat(void* store, const embercache_bytes* keys, embercache_result* results,
                 size_t count, const embercache_batch* batch) {
  (void)store;
  (void)keys;
  for (size_t i = 0; i < count; ++i) {
    results[i].code = 1000;
    memset(results[i].message, 'm', sizeof results[i].message);
  }
  batch->done(batch);
}

/* No answer at all: the results stay as they came. */
static void remove_objects(void* store, const embercache_remove_item* items,
                           embercache_result* results, size_t count,
                           const embercache_batch* batch) {
  (void)store;
  (void)items;
  (void)results;
  (void)count;
  batch->done(batch);
}

static const embercache_store_plugin_table table = {
    .struct_size = BROKEN == SHORT_TABLE ? 24 : sizeof(embercache_store_plugin_table),
    .abi_version = BROKEN == OTHER_VERSION ? 2 : EMBERCACHE_STORE_PLUGIN_ABI_VERSION,
    .open = open_store,
    .stat = stat,
    .get = BROKEN == NO_GET ? NULL : get,
    .put = put,
    .remove = remove_objects,
    .close = close_store,
};

#if BROKEN == NO_ENTRY_POINT
const void* some_other_function(void) {
  return &table;
}
#else
const embercache_store_plugin_table* embercache_store_plugin(void) {
  return BROKEN == NO_TABLE ? NULL : &table;
}
#endif
