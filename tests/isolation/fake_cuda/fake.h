/* What the parts of the fake driver ask of each other. */
#ifndef FAKE_CUDA_FAKE_H
#define FAKE_CUDA_FAKE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "driver.h"

#define GENERATION 9 /* of its GPUs: compute capability 9.0 */
#define NO_BINARY_FOR_GPU 209

/* The GPU of the calling thread's context, or -1. */
int fake_gpu(void);
int fake_gpu_of(const void *context);
int fake_gpu_of_stream(CUstream stream);
/* Where memory lies, WORLD_HOST if not on a GPU. What no driver of today knows is a GPU's, too. */
int fake_gpu_at(CUmemLocation location);
/* The graph that the stream is captured into, or NULL; and an allocation among its nodes. */
CUgraph fake_captured(CUstream stream);
bool fake_graph_free(CUdeviceptr address);
CUresult fake_graph_allocate(CUgraph graph, int gpu, CUdeviceptr *address, uint64_t bytes);
/* Whether it was a green context that is destroyed. */
bool fake_ended(const void *context);
/* The context of which it is a part, by which some drivers may name its streams' one. */
CUresult fake_primary_of(CUgreenCtx green, CUcontext *context);
/* The context itself. */
const void *fake_owner(void);
/* Free a block of a pool; false if it is none. */
bool fake_pool_free(uint64_t address);
/* Let pools shrink, as they do when the stream is waited for. */
void fake_pools_settle(void);

/* Change what a call was asked by, so that a program can tell whether it was its own or a copy. */
#define SPOIL(told) memset((void *)(uintptr_t)&(told), 0, sizeof(told))

/* A call that has done its work may come back late, and others get in between. */
void fake_come_back_late(void);

/* A call that is over may wait by a word: a test sees by it that the call has come (1), and lets it go on
 * (2), or this one and all that follow (3). */
void fake_come_when_told(_Atomic int *come);

/* What FAKE_CUDA_MANAGED says of managed memory: what is brought elsewhere stays at home, too (kept); small blocks have
 * granules of their own, whatever gaps others have (apart); nothing is brought anywhere by name (still). */
bool fake_managed_is(const char *how);

#endif
