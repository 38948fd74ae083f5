/* The GPUs of the fake driver: one file, mapped by all processes that use them, as real GPUs are shared by processes.
 *
 * Memory is counted by process and by tenant, with the most that each tenant ever held. Time: each process has a queue
 * of work on each GPU, and the GPU serves all queues that are not empty in turns of 2 ms, whatever anybody's limits
 * are. Nothing runs in the background: whoever asks works out what has happened up to now.
 *
 * Clients of MPS (who has CUDA_MPS_PIPE_DIRECTORY) are one context to the GPU: they have one turn among them all, and in
 * it they run at once. Every kernel would fill the GPU, so each runs as wide as its CUDA_MPS_ACTIVE_THREAD_PERCENTAGE
 * lets it, and all narrower by the same factor where that is more than the GPU has. So nobody waits for another's blocks
 * to end, nor for memory's bandwidth: a real GPU is less kind. */
#ifndef FAKE_CUDA_WORLD_H
#define FAKE_CUDA_WORLD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define WORLD_GPUS 8
#define WORLD_HOST (-1) /* for a GPU's number: memory of the host's, of which there is enough */
#define WORLD_TENANTS 32
#define WORLD_PROCESSES 1024
#define WORLD_BLOCKS 1024
#define WORLD_HOLDERS 8
#define WORLD_BYTES (1 << 20)

struct world_tenant {
    uint64_t used[WORLD_GPUS], peak[WORLD_GPUS], busy_ns[WORLD_GPUS];
};

struct world_process {
    uint64_t born;
    uint32_t pid, tenant;
    uint64_t used[WORLD_GPUS], submitted[WORLD_GPUS], executed[WORLD_GPUS];
    uint64_t width; /* a client of MPS: percent of the multiprocessors that it may fill; 0: it is none */
};

/* Memory that several processes may hold. */
struct world_block {
    uint64_t id, bytes;
    uint32_t gpu, tenant, holder[WORLD_HOLDERS];
};

struct world {
    /* Written by the test before anybody starts. */
    uint64_t magic, gpus, context_bytes, memory[WORLD_GPUS];
    /* Ours. */
    struct world_tenant tenant[WORLD_TENANTS];
    uint64_t clock[WORLD_GPUS], turn[WORLD_GPUS], turn_left[WORLD_GPUS], swept, blocks_made, blocks_used, highest;
    struct world_process process[WORLD_PROCESSES];
    struct world_block block[WORLD_BLOCKS];
    uint32_t ready;
    pthread_mutex_t lock;
};

extern struct world *world;

bool world_open(void);
/* Memory, in bytes that are whole granules. */
bool world_take(int gpu, uint64_t bytes);
void world_give(int gpu, uint64_t bytes);
void world_free_memory(int gpu, uint64_t *free, uint64_t *total);
/* Turn memory that this process took into a block that others may hold too; 0 if there is no room for it. */
uint64_t world_share(int gpu, uint64_t bytes);
/* Hold a block of another process; its bytes, or 0 if it is gone. */
uint64_t world_join(uint64_t id, int *gpu);
void world_leave(uint64_t id);

/* Work: how much of this process's queue there is in all, and how much of it has been done. */
uint64_t world_submit(int gpu, uint64_t ns);
uint64_t world_done(int gpu);
uint64_t world_submitted(int gpu);
void world_wait(int gpu, uint64_t target);

#endif
