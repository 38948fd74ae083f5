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

/* Between these two nobody asks the driver anything. */
void pace_pause(void);
void pace_resume(void);

/* A context is about to end; and it has, or was refused. Meanwhile nobody asks the driver anything of it, and what it was
 * given counts as in flight; all else goes on, for the driver may take its time. A green one, or NULL, the driver knows as
 * that context, or as none (NULL); its streams can't be asked any more: before it there is to be room to note that. */
void pace_await_places(void);
void pace_ends(CUcontext context, CUgreenCtx green);
void pace_ended(CUcontext context, bool gone);

#endif
