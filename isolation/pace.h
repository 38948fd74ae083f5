/* How fast this container may launch: see pace.c. */
#ifndef ALIQUOT_PACE_H
#define ALIQUOT_PACE_H

#include <stdbool.h>

#include "driver.h"

/* Wait until the container may use the GPU again. */
void pace_before(CUstream stream, bool per_thread);

/* Note that work was given to the GPU. */
void pace_after(CUstream stream, bool per_thread);

/* The thread has waited for the GPU: what it launched is done. */
void pace_done(void);

#endif
