#include "stores.h"

#include <pthread.h>

#include "holdings.h"

#define PIECE 65536ULL

struct level {
    uint64_t bytes, charged;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct level levels[STORES][MOST_GPUS];

static uint64_t rounded(uint64_t bytes) {
    return (bytes + PIECE - 1) & ~(PIECE - 1);
}

bool store_enter(enum store store, int gpu, uint64_t bytes) {
    if (bytes > LARGEST_SIZE) return false;
    pthread_mutex_lock(&lock);
    struct level *level = &levels[store][gpu];
    uint64_t wanted = TO_GRANULES(level->bytes + rounded(bytes));
    bool fits = wanted <= level->charged || charge(gpu, wanted - level->charged);
    if (fits) {
        level->bytes += rounded(bytes);
        if (wanted > level->charged) level->charged = wanted;
    }
    pthread_mutex_unlock(&lock);
    return fits;
}

void store_leave(enum store store, int gpu, uint64_t bytes) {
    pthread_mutex_lock(&lock);
    struct level *level = &levels[store][gpu];
    level->bytes -= rounded(bytes);
    if (level->bytes == 0) {
        account_release(gpu, level->charged);
        level->charged = 0;
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
