/* What the parts of the fake driver ask of each other. */
#ifndef FAKE_CUDA_FAKE_H
#define FAKE_CUDA_FAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "driver.h"

/* The GPU of the calling thread's context, or -1. */
int fake_gpu(void);
int fake_gpu_of(const void *context);
int fake_gpu_of_stream(CUstream stream);
/* The context itself. */
const void *fake_owner(void);
/* Free a block of a pool; false if it is none. */
bool fake_pool_free(uint64_t address);
/* Let pools shrink, as they do when the stream is waited for. */
void fake_pools_settle(void);

/* A call that has done its work may come back late, and others get in between. */
void fake_come_back_late(void);

#endif
