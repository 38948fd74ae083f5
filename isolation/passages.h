/* What calls that place were given to do, and whether their streams have come so far: what the driver is asked for it. */
#ifndef ALIQUOT_PASSAGES_H
#define ALIQUOT_PASSAGES_H

#include "driver.h"
#include "managed_core.h"

/* What the stream was given by now; NULL where nobody can tell. */
struct passage *passage_behind(const struct lane *lane);
void passages_free(struct passage *first);

/* Take back what has left by now: all of it, or of the blocks that a call places, so that who brought it is no longer in
 * anybody's way. */
void passages_settle(struct managed_core *core);
void passages_settle_in(struct managed_core *core, const struct placing *placing);

/* A context is about to end, and nobody asks after its events any more; then it has, and what it had to do is over, or it
 * was refused. */
void passages_end(struct managed_core *core, CUcontext context);
void passages_ended(struct managed_core *core, CUcontext context, bool gone);

/* A green context is about to end, known as either: what its streams have still to do nobody can tell afterwards. */
void passages_end_green(struct managed_core *core, const void *green, const void *part);

#endif
