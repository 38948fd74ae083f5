/* How fast this container may launch: see pace.c. */
#ifndef ALIQUOT_PACE_H
#define ALIQUOT_PACE_H

#include <stdbool.h>

#include "driver.h"

/* Wait until the container may use the stream's GPU again. What to tell afterwards; -1 where nothing is paced. */
int pace_before(CUstream stream, bool per_thread);

/* Note that the work was given to that GPU. */
void pace_after(int paced, CUstream stream, bool per_thread);

/* The thread has waited for the GPU: much of what it launched is done. */
void pace_done(void);

/* A stream is about to end, or to be captured: it can't be asked any more whether it is done. */
void pace_let_go(CUstream stream, bool per_thread);

/* Between these two nobody asks the driver anything. `gone` is the context that ended meanwhile, or NULL; or EVERY_CONTEXT
 * where streams have ended and nobody knows whose. */
#define EVERY_CONTEXT ((CUcontext)UINTPTR_MAX)
void pace_pause(void);
void pace_resume(CUcontext gone);

/* A green context is about to end, and its streams can't be asked any more: have room to note that; and between those two,
 * note it. The context is what the driver knows it by, or NULL. */
void pace_await_places(void);
void pace_let_go_green(CUcontext green);

#endif
