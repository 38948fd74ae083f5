#include "stores.h"

#include <pthread.h>

#include "holdings.h"

/* Sizes are rounded up to powers of two, from 64 KiB to 1 MiB, and each of these classes to whole granules: however the
 * driver packs such sizes into granules, and whatever holes are left for them, it takes no more than that. */
#define CLASSES 5
#define SMALLEST 65536ULL

struct level {
    uint64_t live[CLASSES], most[CLASSES], all, charged;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct level levels[STORES][MOST_GPUS];

static int class_of(uint64_t bytes) {
    int class = 0;
    while (SMALLEST << class < bytes) class++;
    return class;
}

static uint64_t wanted(const struct level *level) {
    uint64_t all = 0;
    for (int class = 0; class < CLASSES; class++) all += TO_GRANULES(level->most[class] * (SMALLEST << class));
    return all;
}

bool store_enter(enum store store, int gpu, uint64_t bytes) {
    int class = class_of(bytes);
    pthread_mutex_lock(&lock);
    struct level *level = &levels[store][gpu], before = *level;
    level->all++;
    if (++level->live[class] > level->most[class]) level->most[class] = level->live[class];
    bool fits = charge(gpu, wanted(level) - level->charged);
    if (fits)
        level->charged = wanted(level);
    else
        *level = before;
    pthread_mutex_unlock(&lock);
    return fits;
}

void store_leave(enum store store, int gpu, uint64_t bytes) {
    pthread_mutex_lock(&lock);
    struct level *level = &levels[store][gpu];
    level->live[class_of(bytes)]--;
    if (--level->all == 0) {
        account_release(gpu, level->charged);
        *level = (struct level){0};
    }
    pthread_mutex_unlock(&lock);
}

static void forget(void) {
    pthread_mutex_init(&lock, NULL);
    for (int store = 0; store < STORES; store++)
        for (int gpu = 0; gpu < MOST_GPUS; gpu++) levels[store][gpu] = (struct level){0};
}

__attribute__((constructor)) static void prepare(void) {
    pthread_atfork(NULL, NULL, forget);
}
