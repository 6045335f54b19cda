#pragma once

/*
 * A store backend as a shared object, in C or in any language that can speak C. docs/plugins.md is
 * the guide, examples/store_plugin one that works.
 *
 * A plugin exports one function, embercache_store_plugin. It returns a table of functions that
 * lives as long as the process; the plugin is never unloaded.
 *
 * All functions may be called from any thread at any time, several at once, except where they say
 * otherwise. A store keeps opaque bytes under keys of 1 to 512 bytes, any byte values; two keys
 * never share an object. Batches have at least one item, and one key may be in a batch twice: both
 * gets are answered, of puts the first counts (of replacing ones the last stays).
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What this header describes. A host refuses a plugin of another version. */
#define EMBERCACHE_STORE_PLUGIN_ABI_VERSION 1u

/* Room for a message, its final NUL included. Messages are for people: one line of UTF-8. */
#define EMBERCACHE_STORE_MESSAGE_BYTES 160

typedef struct embercache_bytes {
  const void* data;
  size_t size;
} embercache_bytes;

typedef struct embercache_memory {
  void* data;
  size_t size;
} embercache_memory;

/* How an item ended. Other values than these count as EMBERCACHE_FAILED. */
typedef enum embercache_outcome {
  EMBERCACHE_FAILED = 0,     /* see code and message */
  EMBERCACHE_HIT = 1,        /* get: the object fills the buffers exactly; stat: it is there */
  EMBERCACHE_MISS = 2,       /* get, stat: no object; remove: nothing was there */
  EMBERCACHE_WRONG_SIZE = 3, /* get: there is one of another size than the buffers' sum */
  EMBERCACHE_STORED = 4,     /* put: these bytes are readable */
  EMBERCACHE_PRESENT = 5,    /* put: the key had an object, which stays */
  EMBERCACHE_ACCEPTED = 6,   /* put: one of these two, the store cannot tell which */
  EMBERCACHE_REMOVED = 7,    /* remove */
  EMBERCACHE_CHANGED = 8     /* remove: another version than the one named is there; it stays */
} embercache_outcome;

/* Why an item failed. Other values than these count as EMBERCACHE_INTERNAL. */
typedef enum embercache_code {
  EMBERCACHE_OK = 0,
  EMBERCACHE_INVALID = 1,            /* the input is wrong; the message says what would be right */
  EMBERCACHE_RESOURCE_EXHAUSTED = 2, /* no space or memory now */
  EMBERCACHE_UNAVAILABLE = 3,        /* the store does not answer now */
  EMBERCACHE_DEADLINE_EXCEEDED = 4,
  EMBERCACHE_CANCELLED = 5,
  EMBERCACHE_UNIMPLEMENTED = 6,
  EMBERCACHE_INTERNAL = 7
} embercache_code;

/* What tells one object under a key from the next one under it. Equality is all it is for. */
typedef struct embercache_version {
  uint64_t high;
  uint64_t low;
} embercache_version;

typedef struct embercache_result {
  int32_t outcome;            /* embercache_outcome */
  int32_t code;               /* embercache_code, of a failure */
  uint64_t bytes;             /* hit, wrong size: the object's size */
  embercache_version version; /* hit: of the object; zeros when flags lack VERSIONS */
  char message[EMBERCACHE_STORE_MESSAGE_BYTES];
} embercache_result;

typedef struct embercache_get_item {
  embercache_bytes key;
  const embercache_memory* buffers; /* filled one after the other */
  size_t buffer_count;
} embercache_get_item;

typedef struct embercache_put_item {
  embercache_bytes key;
  const embercache_bytes* buffers; /* the object is these, one after the other */
  size_t buffer_count;
  int32_t replace; /* 0: what is there stays. 1: it is replaced, as one */
} embercache_put_item;

typedef struct embercache_remove_item {
  embercache_bytes key;
  int32_t has_version; /* 1: remove only this version */
  embercache_version version;
} embercache_remove_item;

/* Limits of a batch, and how its end is told. Lives until done is called. */
typedef struct embercache_batch {
  /* Nanoseconds of CLOCK_MONOTONIC; INT64_MAX: none. What is not done by then should end as
   * EMBERCACHE_DEADLINE_EXCEEDED. */
  int64_t deadline_ns;
  /* Not 0 when the caller has given up; may be asked at any time before done. */
  int (*cancelled)(const struct embercache_batch* batch);
  /* To be called exactly once, from any thread, also before the batch function returns: every
   * result is filled, and the plugin touches neither items, buffers nor results again. */
  void (*done)(const struct embercache_batch* batch);
} embercache_batch;

/* Takes one listed object. Returns 0 when it wants no more. */
typedef int (*embercache_list_fn)(void* context, embercache_bytes id, uint64_t bytes,
                                  embercache_bytes cursor);

/* Flags of a plugin. */
#define EMBERCACHE_STORE_VERSIONS 1u /* objects have versions, and removals compare them */

typedef struct embercache_store_plugin_table {
  size_t struct_size;   /* sizeof(embercache_store_plugin_table) */
  uint32_t abi_version; /* EMBERCACHE_STORE_PLUGIN_ABI_VERSION */
  uint32_t flags;

  /* Opens a store. `config` is the text of a JSON object, the option "config" of the backend.
   * Returns an embercache_code, and sets *store, or fills `message`. A store whose remote side does
   * not answer is no failure. */
  int32_t (*open)(const char* config, void** store, char message[EMBERCACHE_STORE_MESSAGE_BYTES]);

  /* The batches: one result an item, in the items' order; the results come zeroed. */
  void (*stat)(void* store, const embercache_bytes* keys, embercache_result* results, size_t count,
               const embercache_batch* batch);
  void (*get)(void* store, const embercache_get_item* items, embercache_result* results,
              size_t count, const embercache_batch* batch);
  void (*put)(void* store, const embercache_put_item* items, embercache_result* results,
              size_t count, const embercache_batch* batch);
  void (*remove)(void* store, const embercache_remove_item* items, embercache_result* results,
                 size_t count, const embercache_batch* batch);

  /* Closes the store and frees it. No other call on it runs then or comes later. */
  void (*close)(void* store);

  /* What follows may be null. */

  /* Gives the objects behind `cursor` (empty: from the start) to `take`, each with an id that the
   * batches take as a key, and the cursor that continues behind it, until `take` returns 0 or there
   * are no more. Returns an embercache_code. */
  int32_t (*list)(void* store, embercache_bytes cursor, embercache_list_fn take, void* context,
                  char message[EMBERCACHE_STORE_MESSAGE_BYTES]);

  /* Whether the store works: 1 yes, 0 no, -1 starting; fills `message` with what it is connected to
   * or what is wrong. Never waits. */
  int32_t (*health)(void* store, char message[EMBERCACHE_STORE_MESSAGE_BYTES]);

  /* Announces memory that later buffers lie in, and takes it back. `fd` is the memfd behind it, or
   * -1. Returns an embercache_code. */
  int32_t (*register_memory)(void* store, embercache_memory memory, int fd, uint64_t fd_offset);
  int32_t (*unregister_memory)(void* store, embercache_memory memory);
} embercache_store_plugin_table;

/* The one function that a plugin exports. */
const embercache_store_plugin_table* embercache_store_plugin(void);

#ifdef __cplusplus
} /* extern "C" */
#endif
