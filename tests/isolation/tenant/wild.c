/* Threads that take, place and free managed memory in each other's way, as no program should. */
#include "tenant.h"

#include <pthread.h>
#include <stdatomic.h>

#define SHARED 12

static _Atomic uint64_t taken[SHARED]; /* addresses that any of them may place or free; 0: none */

struct wild {
    pthread_t thread;
    uint64_t seed, steps;
    int gpus;
    CUstream stream;
};

static uint64_t below(struct wild *wild, uint64_t most) {
    uint64_t *seed = &wild->seed;
    *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17;
    return *seed % most;
}

static uint64_t size_of(struct wild *wild) {
    static const uint64_t sizes[] = {4096, 60000, 1 << 20, 3 << 20, 6 << 20, 40 << 20, 150 << 20};
    return sizes[below(wild, sizeof sizes / sizeof *sizes)];
}

static void take_one(struct wild *wild) {
    CUdeviceptr address;
    uint64_t before = 0;
    if (CU(cuMemAllocManaged)(&address, size_of(wild), 1) != CUDA_SUCCESS) return;
    if (!atomic_compare_exchange_strong(&taken[below(wild, SHARED)], &before, address)) CU(cuMemFree_v2)(address);
}

static void free_one(struct wild *wild) {
    uint64_t address = atomic_exchange(&taken[below(wild, SHARED)], 0);
    if (address) CU(cuMemFree_v2)(address);
}

static void place_one(struct wild *wild) {
    CUdeviceptr address[] = {taken[below(wild, SHARED)], taken[below(wild, SHARED)]};
    size_t bytes[] = {size_of(wild), size_of(wild)}, from[] = {0, 1};
    int gpu = (int)below(wild, (uint64_t)wild->gpus + 1) - 1;
    CUmemLocation there[] = {{.type = gpu < 0 ? 2 : LOCATION_DEVICE, .id = gpu < 0 ? 0 : gpu}, {.type = 2}};
    CUstream stream = below(wild, 2) ? wild->stream : NULL;
    switch (below(wild, 6)) {
    case 0: CU(cuMemAdvise_v2)(address[0], bytes[0], below(wild, 8) ? 3 : 1, there[0]); break;
    case 1: CU(cuMemPrefetchBatchAsync)(address, bytes, 2, there, from, 2, 0, stream); break;
    case 2: CU(cuMemPrefetchAsync_ptsz)(address[0], bytes[0], gpu, NULL); break;
    default: CU(cuMemPrefetchAsync)(address[0], bytes[0], gpu, stream);
    }
}

static void *go_wild(void *with) {
    struct wild *wild = with;
    size_t left, all;
    CU(cuCtxSetCurrent)(context);
    CU(cuStreamCreate)(&wild->stream, 0);
    for (uint64_t step = 0; step < wild->steps; step++) {
        switch (below(wild, 12)) {
        case 0: CU(cuStreamDestroy_v2)(wild->stream), CU(cuStreamCreate)(&wild->stream, 0); break;
        case 1: CU(cuMemGetInfo_v2)(&left, &all); break;
        case 2: case 3: case 4: take_one(wild); break;
        case 5: case 6: free_one(wild); break;
        default: place_one(wild);
        }
    }
    CU(cuStreamDestroy_v2)(wild->stream);
    return NULL;
}

/* Four threads at once, and then nothing of it is left. */
void be_wild(uint64_t seed, uint64_t steps, int gpus) {
    struct wild wild[4];
    for (int i = 0; i < 4; i++) {
        wild[i] = (struct wild){.seed = (seed + (uint64_t)i) * 0x9E3779B97F4A7C15ULL | 1, .steps = steps, .gpus = gpus};
        pthread_create(&wild[i].thread, NULL, go_wild, &wild[i]);
    }
    for (int i = 0; i < 4; i++) pthread_join(wild[i].thread, NULL);
    for (int i = 0; i < SHARED; i++)
        if (taken[i]) CU(cuMemFree_v2)(taken[i]);
    for (int i = 0; i < SHARED; i++) taken[i] = 0;
    puts("0");
}
