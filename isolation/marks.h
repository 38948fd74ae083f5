/* Events behind launches, by which the pace sees how far the GPU has come. */
#ifndef ALIQUOT_MARKS_H
#define ALIQUOT_MARKS_H

#include <stdbool.h>

#include "driver.h"

struct mark {
    CUevent event; /* NULL: it went with its context */
    CUcontext context;
};

/* Whether the GPU has come to it. What is of a context that is ending, if any is, nobody asks the driver for. */
bool mark_is_reached(const struct mark *mark, CUcontext ending);

/* Put it behind all that a stream was given; false if that can't be. */
bool mark_put(struct mark *mark, CUcontext ending, CUstream stream, bool per_thread);

#endif
