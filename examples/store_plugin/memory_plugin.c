/*
 * A store plugin for EmberCache in C: objects in this process's memory, in a sorted array under one
 * mutex. It is small enough to read whole, and does all that a store has to do; docs/plugins.md
 * walks through it.
 *
 * Build: cc -std=c11 -O2 -fPIC -shared -I<embercache>/include memory_plugin.c -o memory_plugin.so
 */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embercache/store_plugin.h"

typedef struct object {
  char* key;
  size_t key_size;
  unsigned char* data;
  size_t size;
  uint64_t version;
} object;

typedef struct memory_store {
  pthread_mutex_t mutex;
  object* objects; /* sorted by key */
  size_t count;
  size_t capacity;
  uint64_t last_version;
} memory_store;

static int compare_keys(const char* a, size_t a_size, const char* b, size_t b_size) {
  const int order = memcmp(a, b, a_size < b_size ? a_size : b_size);
  if (order != 0) return order;
  return a_size < b_size ? -1 : a_size > b_size;
}

/* The place of the key: where it is, or where it would have to go. */
static size_t find(const memory_store* store, embercache_bytes key, int* found) {
  size_t low = 0;
  size_t high = store->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const object* at = &store->objects[middle];
    if (compare_keys(at->key, at->key_size, key.data, key.size) < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  *found = low < store->count && compare_keys(store->objects[low].key, store->objects[low].key_size,
                                              key.data, key.size) == 0;
  return low;
}

static void fail(embercache_result* result, int32_t code, const char* message) {
  result->outcome = EMBERCACHE_FAILED;
  result->code = code;
  snprintf(result->message, sizeof result->message, "%s", message);
}

/* Whether the item is to be served; an item of a batch that was given up is not. */
static int may_go_on(const embercache_batch* batch, embercache_result* result) {
  if (!batch->cancelled(batch)) return 1;
  fail(result, EMBERCACHE_CANCELLED, "the call was cancelled");
  return 0;
}

static void describe(const object* at, embercache_result* result) {
  result->outcome = EMBERCACHE_HIT;
  result->bytes = at->size;
  result->version.low = at->version;
}

static void store_stat(void* self, const embercache_bytes* keys, embercache_result* results,
                       size_t count, const embercache_batch* batch) {
  memory_store* store = self;
  pthread_mutex_lock(&store->mutex);
  for (size_t i = 0; i < count; ++i) {
    int found;
    const size_t place = find(store, keys[i], &found);
    if (found) {
      describe(&store->objects[place], &results[i]);
    } else {
      results[i].outcome = EMBERCACHE_MISS;
    }
  }
  pthread_mutex_unlock(&store->mutex);
  batch->done(batch);
}

static void get_one(const memory_store* store, const embercache_get_item* item,
                    embercache_result* result) {
  int found;
  const size_t place = find(store, item->key, &found);
  if (!found) {
    result->outcome = EMBERCACHE_MISS;
    return;
  }
  const object* at = &store->objects[place];
  describe(at, result);
  size_t wanted = 0;
  for (size_t i = 0; i < item->buffer_count; ++i) wanted += item->buffers[i].size;
  if (wanted != at->size) {
    result->outcome = EMBERCACHE_WRONG_SIZE;
    return;
  }
  const unsigned char* from = at->data;
  for (size_t i = 0; i < item->buffer_count; ++i) {
    if (item->buffers[i].size == 0) continue;
    memcpy(item->buffers[i].data, from, item->buffers[i].size);
    from += item->buffers[i].size;
  }
}

static void store_get(void* self, const embercache_get_item* items, embercache_result* results,
                      size_t count, const embercache_batch* batch) {
  memory_store* store = self;
  for (size_t i = 0; i < count; ++i) {
    if (!may_go_on(batch, &results[i])) continue;
    pthread_mutex_lock(&store->mutex);
    get_one(store, &items[i], &results[i]);
    pthread_mutex_unlock(&store->mutex);
  }
  batch->done(batch);
}

/* An empty place in the array; 0 without memory. */
static int make_place(memory_store* store, size_t place) {
  if (store->count == store->capacity) {
    const size_t capacity = store->capacity == 0 ? 64 : 2 * store->capacity;
    object* objects = realloc(store->objects, capacity * sizeof *objects);
    if (objects == NULL) return 0;
    store->objects = objects;
    store->capacity = capacity;
  }
  memmove(&store->objects[place + 1], &store->objects[place],
          (store->count - place) * sizeof *store->objects);
  ++store->count;
  return 1;
}

/* The object that the item describes; its key is NULL without memory. */
static object copy_item(const embercache_put_item* item) {
  object made = {NULL, item->key.size, NULL, 0, 0};
  for (size_t i = 0; i < item->buffer_count; ++i) made.size += item->buffers[i].size;
  made.data = malloc(made.size > 0 ? made.size : 1);
  if (made.data == NULL) return made;
  unsigned char* to = made.data;
  for (size_t i = 0; i < item->buffer_count; ++i) {
    if (item->buffers[i].size == 0) continue;
    memcpy(to, item->buffers[i].data, item->buffers[i].size);
    to += item->buffers[i].size;
  }
  made.key = malloc(made.key_size);
  if (made.key != NULL) memcpy(made.key, item->key.data, made.key_size);
  return made;
}

static void free_object(object* at) {
  free(at->key);
  free(at->data);
}

static void put_one(memory_store* store, const embercache_put_item* item,
                    embercache_result* result) {
  int found;
  const size_t place = find(store, item->key, &found);
  if (found && !item->replace) {
    result->outcome = EMBERCACHE_PRESENT;
    return;
  }
  object made = copy_item(item);
  if (made.key == NULL || (!found && !make_place(store, place))) {
    free_object(&made);
    fail(result, EMBERCACHE_RESOURCE_EXHAUSTED, "no memory for the object");
    return;
  }
  if (found) free_object(&store->objects[place]);
  made.version = ++store->last_version;
  store->objects[place] = made;
  result->outcome = EMBERCACHE_STORED;
}

static void store_put(void* self, const embercache_put_item* items, embercache_result* results,
                      size_t count, const embercache_batch* batch) {
  memory_store* store = self;
  for (size_t i = 0; i < count; ++i) {
    if (!may_go_on(batch, &results[i])) continue;
    pthread_mutex_lock(&store->mutex);
    put_one(store, &items[i], &results[i]);
    pthread_mutex_unlock(&store->mutex);
  }
  batch->done(batch);
}

static void store_remove(void* self, const embercache_remove_item* items,
                         embercache_result* results, size_t count, const embercache_batch* batch) {
  memory_store* store = self;
  pthread_mutex_lock(&store->mutex);
  for (size_t i = 0; i < count; ++i) {
    int found;
    const size_t place = find(store, items[i].key, &found);
    if (!found) {
      results[i].outcome = EMBERCACHE_MISS;
    } else if (items[i].has_version && (items[i].version.high != 0 ||
                                        items[i].version.low != store->objects[place].version)) {
      results[i].outcome = EMBERCACHE_CHANGED;
    } else {
      free_object(&store->objects[place]);
      --store->count;
      memmove(&store->objects[place], &store->objects[place + 1],
              (store->count - place) * sizeof *store->objects);
      results[i].outcome = EMBERCACHE_REMOVED;
    }
  }
  pthread_mutex_unlock(&store->mutex);
  batch->done(batch);
}

/* The cursor behind an object is its key. */
static int32_t store_list(void* self, embercache_bytes cursor, embercache_list_fn take,
                          void* context, char message[EMBERCACHE_STORE_MESSAGE_BYTES]) {
  memory_store* store = self;
  (void)message;
  pthread_mutex_lock(&store->mutex);
  int found = 0;
  size_t i = cursor.size > 0 ? find(store, cursor, &found) : 0;
  for (i += found ? 1 : 0; i < store->count; ++i) {
    const embercache_bytes id = {store->objects[i].key, store->objects[i].key_size};
    if (!take(context, id, store->objects[i].size, id)) break;
  }
  pthread_mutex_unlock(&store->mutex);
  return EMBERCACHE_OK;
}

static int32_t store_open(const char* config, void** store,
                          char message[EMBERCACHE_STORE_MESSAGE_BYTES]) {
  if (strcmp(config, "{}") != 0) {
    snprintf(message, EMBERCACHE_STORE_MESSAGE_BYTES, "this plugin has no options, not %.80s",
             config);
    return EMBERCACHE_INVALID;
  }
  memory_store* made = calloc(1, sizeof *made);
  if (made == NULL) return EMBERCACHE_RESOURCE_EXHAUSTED;
  pthread_mutex_init(&made->mutex, NULL);
  *store = made;
  return EMBERCACHE_OK;
}

static void store_close(void* self) {
  memory_store* store = self;
  for (size_t i = 0; i < store->count; ++i) free_object(&store->objects[i]);
  free(store->objects);
  pthread_mutex_destroy(&store->mutex);
  free(store);
}

static int32_t store_health(void* self, char message[EMBERCACHE_STORE_MESSAGE_BYTES]) {
  memory_store* store = self;
  pthread_mutex_lock(&store->mutex);
  snprintf(message, EMBERCACHE_STORE_MESSAGE_BYTES, "%zu objects in memory", store->count);
  pthread_mutex_unlock(&store->mutex);
  return 1;
}

const embercache_store_plugin_table* embercache_store_plugin(void) {
  static const embercache_store_plugin_table table = {
      .struct_size = sizeof(embercache_store_plugin_table),
      .abi_version = EMBERCACHE_STORE_PLUGIN_ABI_VERSION,
      .flags = EMBERCACHE_STORE_VERSIONS,
      .open = store_open,
      .stat = store_stat,
      .get = store_get,
      .put = store_put,
      .remove = store_remove,
      .close = store_close,
      .list = store_list,
      .health = store_health,
  };
  return &table;
}
