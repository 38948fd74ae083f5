#include "graph_shares.h"

#include <pthread.h>

#include "holdings.h"

#define FOUND_BITS 3
#define HAS_BODIES 1U

/* How often any of it has been changed: who looked without a lock looks again if it was meanwhile. */
static _Atomic uint64_t changes;

/* What a graph allocates on one of the slice's GPUs is held by a number of its own, for no two graphs are so near. */
static uint64_t part_of(CUgraphExec exec, int gpu) {
    return (uintptr_t)exec + (uint64_t)gpu;
}

/* None where the limits could not be read, and then no driver is there to answer either. */
static int gpus_here(void) {
    return limits ? (int)limits->gpus : 0;
}

bool graph_note(CUgraphExec exec, const struct graph_asked *asked) {
    bool noted = true;
    for (int gpu = 0; noted && gpu < gpus_here(); gpu++) {
        struct record record = {.bytes = asked->bytes[gpu], .gpu = gpu, .flags = asked->has_bodies ? HAS_BODIES : 0};
        struct holding part = {.kind = EXEC, .value = part_of(exec, gpu), .record = record};
        noted = (gpu && !record.bytes && !record.flags) || holdings_add(part); /* by the first it is known */
    }
    changes++;
    return noted;
}

void graph_forget(CUgraphExec exec) {
    struct holding part;
    for (int gpu = 0; gpu < gpus_here(); gpu++) holdings_take(EXEC, part_of(exec, gpu), &part);
    changes++;
}

static struct graph_share share_of(const struct record *record) {
    return (struct graph_share){.asks = record->bytes, .has = record->extra, .forgot = record->references};
}

static void write_share(struct record *record, void *with) {
    const struct graph_share *share = with;
    record->extra = share->has;
    record->references = share->forgot;
}

void graph_keep(const struct asking *asking, int gpu) {
    struct graph_share share = asking->share[gpu];
    holdings_change(EXEC, part_of(asking->exec, gpu), write_share, &share);
    changes++;
}

static void find(struct asking *asking) {
    asking->as_of = changes;
    asking->known = asking->allocates = asking->has_bodies = false;
    for (int gpu = 0; gpu < gpus_here(); gpu++) {
        struct holding part = {0};
        bool found = holdings_find(EXEC, part_of(asking->exec, gpu), &part);
        asking->share[gpu] = share_of(&part.record);
        asking->known = asking->known || found;
        asking->has_bodies = asking->has_bodies || part.record.flags & HAS_BODIES;
        asking->allocates = asking->allocates || asking->has_bodies || part.record.bytes;
    }
}

bool graph_is_as_asked(const struct asking *asking) {
    return asking->as_of == changes;
}

void graph_ask_anew(struct asking *asking) {
    if (!graph_is_as_asked(asking)) find(asking);
}

/* Programs launch a few graphs again and again: to look up each anew would be a quarter of what a launch costs. */
struct asking *graph_asking(CUgraphExec exec) {
    static __thread struct asking found[1 << FOUND_BITS];
    struct asking *asking = &found[((uintptr_t)exec * 0x9E3779B97F4A7C15ULL) >> (64 - FOUND_BITS)];
    if (asking->exec == exec && asking->as_of == changes) return asking;
    asking->exec = exec;
    find(asking);
    return asking;
}

static void forget(void) {
    changes++;
}

__attribute__((constructor)) static void prepare(void) {
    pthread_atfork(NULL, NULL, forget);
}
