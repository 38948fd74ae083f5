#include "holdings.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "managed.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct map map;

static uint64_t key_of(enum kind kind, uint64_t value) {
    return ((uint64_t)kind << 58) ^ value;
}

static struct holding holding_of(struct record record) {
    /* A handle may use any of its bits, so the kind can't be read off the key. */
    enum kind kind = (enum kind)(record.flags >> 24);
    return (struct holding){.kind = kind, .value = record.key ^ ((uint64_t)kind << 58), .record = record};
}

bool holdings_add(struct holding holding) {
    holding.record.key = key_of(holding.kind, holding.value);
    holding.record.flags = (holding.record.flags & 0xFFFFFF) | ((uint32_t)holding.kind << 24);
    pthread_mutex_lock(&lock);
    bool added = map_put(&map, holding.record);
    pthread_mutex_unlock(&lock);
    return added;
}

bool holdings_take(enum kind kind, uint64_t value, struct holding *taken) {
    struct record record;
    pthread_mutex_lock(&lock);
    bool found = map_take(&map, key_of(kind, value), &record);
    pthread_mutex_unlock(&lock);
    if (found) *taken = holding_of(record);
    return found;
}

bool holdings_find(enum kind kind, uint64_t value, struct holding *found) {
    pthread_mutex_lock(&lock);
    const struct record *record = map_find(&map, key_of(kind, value));
    if (record) *found = holding_of(*record);
    pthread_mutex_unlock(&lock);
    return record != NULL;
}

bool holdings_change(enum kind kind, uint64_t value, void (*change)(struct record *record, void *with), void *with) {
    pthread_mutex_lock(&lock);
    struct record *record = map_find(&map, key_of(kind, value));
    if (record) change(record, with);
    pthread_mutex_unlock(&lock);
    return record != NULL;
}

bool holdings_take_of_context(uint64_t context, struct holding *taken) {
    struct record record;
    bool found = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < map.size && !found; i++)
        if (map.rows[i].key && map.rows[i].context == context) found = map_take(&map, map.rows[i].key, &record);
    pthread_mutex_unlock(&lock);
    if (found) *taken = holding_of(record);
    return found;
}

void holdings_each(enum kind kind, void (*visit)(struct holding holding, void *with), void *with) {
    pthread_mutex_lock(&lock);
    struct record *copies = calloc(map.count + 1, sizeof *copies);
    size_t count = 0;
    for (size_t i = 0; copies && i < map.size; i++)
        if (map.rows[i].key && map.rows[i].flags >> 24 == kind) copies[count++] = map.rows[i];
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < count; i++) visit(holding_of(copies[i]), with);
    free(copies);
}

void give_back_unused(int gpu) {
    pools_trim(gpu);
    graphs_trim(gpu);
    handles_settle();
    managed_settle();
}

bool charge(int gpu, uint64_t bytes) {
    if (bytes > LARGEST_SIZE) return false;
    if (account_charge(gpu, bytes)) return true;
    give_back_unused(gpu);
    return account_charge(gpu, bytes);
}

uint64_t current_context(void) {
    CUcontext context = NULL;
    return REAL(cuCtxGetCurrent)(&context) == CUDA_SUCCESS ? (uint64_t)(uintptr_t)context : 0;
}

static void forget(void) {
    /* A child holds nothing: the driver's contexts do not survive a fork. Its copy of the lock may be held by a thread
     * that it does not have. */
    pthread_mutex_init(&lock, NULL);
    map = (struct map){0};
}

__attribute__((constructor)) static void prepare(void) {
    pthread_atfork(NULL, NULL, forget);
}
