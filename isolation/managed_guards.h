/* What is charged of a block while it is taken, for the parts of managed_core.h alone. */
#ifndef ALIQUOT_MANAGED_GUARDS_H
#define ALIQUOT_MANAGED_GUARDS_H

#include "managed_core.h"

/* What a call that is about to begin makes the blocks need that are being taken; and that it was charged. */
void guards_plan(const struct managed_core *core, const struct placing *placing, struct fresh *fresh);
void guards_begin(struct managed_core *core, const struct placing *placing);

/* Of its guards a block keeps what it needs: never more than they are, for whatever brings it made one. */
void guards_end(struct managed_core *core, struct taking *taking, const struct fresh *needed);

#endif
