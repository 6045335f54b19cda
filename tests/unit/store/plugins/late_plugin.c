/* The example plugin, with batches that end on another thread, after the batch function returned.
 */

#define embercache_store_plugin embercache_prompt_plugin
#include "examples/store_plugin/memory_plugin.c"
#undef embercache_store_plugin

typedef struct late_batch {
  embercache_batch batch; /* what the prompt plugin ends */
  const embercache_batch* outer;
  int op;
  void* store;
  const void* items;
  embercache_result* results;
  size_t count;
} late_batch;

static int outer_cancelled(const embercache_batch* batch) {
  const late_batch* late = (const late_batch*)batch;
  return late->outer->cancelled(late->outer);
}

static void end_both(const embercache_batch* batch) {
  late_batch* late = (late_batch*)batch;
  const embercache_batch* outer = late->outer;
  free(late);
  outer->done(outer);
}

static void* run(void* argument) {
  late_batch* late = argument;
  const embercache_store_plugin_table* prompt = embercache_prompt_plugin();
  switch (late->op) {
    case 0:
      prompt->stat(late->store, late->items, late->results, late->count, &late->batch);
      break;
    case 1:
      prompt->get(late->store, late->items, late->results, late->count, &late->batch);
      break;
    case 2:
      prompt->put(late->store, late->items, late->results, late->count, &late->batch);
      break;
    default:
      prompt->remove(late->store, late->items, late->results, late->count, &late->batch);
  }
  return NULL;
}

static void start(int op, void* store, const void* items, embercache_result* results, size_t count,
                  const embercache_batch* batch) {
  late_batch* late = malloc(sizeof *late);
  if (late == NULL) abort();
  const late_batch made = {
      {batch->deadline_ns, outer_cancelled, end_both}, batch, op, store, items, results, count};
  *late = made;
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, late) != 0) abort();
  pthread_detach(thread);
}

static void late_stat(void* store, const embercache_bytes* keys, embercache_result* results,
                      size_t count, const embercache_batch* batch) {
  start(0, store, keys, results, count, batch);
}

static void late_get(void* store, const embercache_get_item* items, embercache_result* results,
                     size_t count, const embercache_batch* batch) {
  start(1, store, items, results, count, batch);
}

static void late_put(void* store, const embercache_put_item* items, embercache_result* results,
                     size_t count, const embercache_batch* batch) {
  start(2, store, items, results, count, batch);
}

static void late_remove(void* store, const embercache_remove_item* items,
                        embercache_result* results, size_t count, const embercache_batch* batch) {
  start(3, store, items, results, count, batch);
}

const embercache_store_plugin_table* embercache_store_plugin(void) {
  static embercache_store_plugin_table table;
  table = *embercache_prompt_plugin();
  table.stat = late_stat;
  table.get = late_get;
  table.put = late_put;
  table.remove = late_remove;
  return &table;
}
