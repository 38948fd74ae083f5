/* Calls that are over, and blocks that were about to be freed, for as long as a block is being taken which may have met them;
 * for the parts of managed_core.h alone. */
#ifndef ALIQUOT_MANAGED_PAST_H
#define ALIQUOT_MANAGED_PAST_H

#include "managed_core.h"

/* A call has ended, and is kept. */
void past_add(struct managed_core *core, struct placing *placing);

/* What no block met that is being taken now. */
void past_forget(struct managed_core *core);

/* At which step a block can have been in its place at the earliest: calls that ended by then did not find it there. */
uint64_t past_begins(const struct managed_core *core, const struct taking *taking, const struct span *block);

#endif
