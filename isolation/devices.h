/* Which of the slice's GPUs it is, by the driver's ways to name one. */
#ifndef ALIQUOT_DEVICES_H
#define ALIQUOT_DEVICES_H

#include <stdbool.h>

#include "driver.h"
#include "limits.h"

/* What a call is answered whose device is no GPU of the slice's: that, or why the driver does not tell. */
CUresult device_refused(CUdevice device);

/* Whether managed memory may be brought there by name; drivers refuse that of GPUs which can't work on it beside the host. */
bool device_is_brought_to(CUdevice device);

/* The GPU that a stream works on, or -1: its context's, whichever is current; of a default stream, the current one's. */
int gpu_of_stream(CUstream stream);

/* Whether one of the slice's GPUs may run code for a kind of GPU (90 for compute capability 9.0; 0: nobody knows): a cubin
 * those of its generation, from its kind on; text, which the driver compiles, all from its kind on. */
bool gpus_may_load(unsigned machine);
bool gpus_may_compile(unsigned machine);

/* A default stream is no object: nobody can end it. The old one has two names, of which the second is one. Here, for each
 * launch asks. */
static inline bool stream_is_made(CUstream stream) {
    return (uintptr_t)stream > LAST_BUILT_IN_STREAM;
}

static inline CUstream stream_by_one_name(CUstream stream) {
    return (uintptr_t)stream == OLD_DEFAULT_STREAM ? NULL : stream;
}

/* Make a stream's context the current one; false if it is, or a default stream's, or nobody can tell. */
bool context_enter(CUstream stream);
void context_leave(void);

#endif
