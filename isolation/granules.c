#include "granules.h"

#include <pthread.h>
#include <stdlib.h>

#include "limits.h"
#include "map.h"

#define UNIT 256ULL /* the driver's alignment of blocks */
#define UNITS (GRANULE / UNIT)
#define WORDS (UNITS / 64)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Granules that a block fills only in part, by number and GPU; `extra` is their bitmap of units in use, `flags` how
 * many of their blocks are large: to what is left beside such a one the driver packs nothing. Granules inside a large
 * block are only counted: nobody else can lie in them. */
static struct map shared;

/* What of a block lies in one granule. */
struct part {
    uint64_t number, from, to;
    int gpu;
    bool large;
};

/* Nobody says that a driver never has blocks of two GPUs in one: then each GPU has its part of it. */
static uint64_t key_of(uint64_t number, int gpu) {
    return number * MOST_GPUS + (uint64_t)gpu + 1;
}

/* By words: a block of a MiB has 4,096 units. */
static void mark(uint64_t *bitmap, uint64_t from, uint64_t to, bool used) {
    uint64_t first = from / UNIT, end = (to + UNIT - 1) / UNIT;
    for (uint64_t at = first; bitmap && at < end; at = (at / 64 + 1) * 64) {
        uint64_t next = (at / 64 + 1) * 64, rest = next > end ? next - end : 0;
        uint64_t bits = (~0ULL << (at % 64)) & (~0ULL >> rest);
        if (used)
            bitmap[at / 64] |= bits;
        else
            bitmap[at / 64] &= ~bits;
    }
}

static uint64_t enter_part(const struct part *part) {
    uint64_t key = key_of(part->number, part->gpu);
    struct record *found = map_find(&shared, key);
    bool fresh = !found;
    if (fresh) {
        struct record record = {.key = key, .gpu = part->gpu, .extra = (uintptr_t)calloc(WORDS, 8)};
        if (!map_put(&shared, record)) {
            free((void *)(uintptr_t)record.extra);
            return GRANULE;
        }
        found = map_find(&shared, key);
    }
    found->references++;
    found->flags += part->large;
    mark((uint64_t *)(uintptr_t)found->extra, part->from, part->to, true);
    return fresh ? GRANULE : 0;
}

static uint64_t leave_part(const struct part *part) {
    struct record *found = map_find(&shared, key_of(part->number, part->gpu)), gone;
    if (!found) return GRANULE;
    found->flags -= part->large;
    mark((uint64_t *)(uintptr_t)found->extra, part->from, part->to, false);
    if (--found->references) return 0;
    map_take(&shared, found->key, &gone);
    free((void *)(uintptr_t)gone.extra);
    return GRANULE;
}

/* Go over a block's granules: those in part by enter_part or leave_part, whole ones by counting. */
static uint64_t walk(uint64_t address, uint64_t bytes, int gpu, bool enter) {
    uint64_t end = address + bytes, first = address / GRANULE, last = (end - 1) / GRANULE, all = 0;
    uint64_t whole_from = (address + GRANULE - 1) / GRANULE, whole_to = end / GRANULE;
    if (whole_to > whole_from) all = (whole_to - whole_from) * GRANULE;
    for (uint64_t number = first;; number = last) {
        bool whole = number >= whole_from && number < whole_to;
        uint64_t start = number * GRANULE;
        struct part part = {
            .number = number,
            .from = address > start ? address - start : 0,
            .to = end < start + GRANULE ? end - start : GRANULE,
            .gpu = gpu,
            .large = bytes > LARGEST_PACKED,
        };
        if (!whole) all += enter ? enter_part(&part) : leave_part(&part);
        if (number == last) return all;
    }
}

uint64_t granules_enter(uint64_t address, uint64_t bytes, int gpu) {
    pthread_mutex_lock(&lock);
    uint64_t fresh = walk(address, bytes ? bytes : 1, gpu, true);
    pthread_mutex_unlock(&lock);
    return fresh;
}

uint64_t granules_leave(uint64_t address, uint64_t bytes, int gpu) {
    pthread_mutex_lock(&lock);
    uint64_t gone = walk(address, bytes ? bytes : 1, gpu, false);
    pthread_mutex_unlock(&lock);
    return gone;
}

static bool has_run(const struct record *granule, uint64_t wanted) {
    const uint64_t *bitmap = (const uint64_t *)(uintptr_t)granule->extra;
    uint64_t run = 0;
    if (!bitmap || granule->flags) return false;
    for (uint64_t unit = 0; unit < UNITS && run < wanted; unit++)
        run = bitmap[unit / 64] >> (unit % 64) & 1 ? 0 : run + 1;
    return run >= wanted;
}

bool granules_have_gap(uint64_t bytes, int gpu) {
    uint64_t wanted = (bytes + UNIT - 1) / UNIT;
    bool found = false;
    if (!bytes || bytes > LARGEST_PACKED) return false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < shared.size && !found; i++) {
        const struct record *row = &shared.rows[i];
        found = row->key && row->gpu == gpu && has_run(row, wanted);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static void forget(void) {
    pthread_mutex_init(&lock, NULL);
    shared = (struct map){0};
}

__attribute__((constructor)) static void prepare(void) {
    pthread_atfork(NULL, NULL, forget);
}
