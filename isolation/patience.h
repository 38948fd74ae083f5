/* When a launch may pass although its container owes: where work in flight may be waiting for that very launch. Pure.
 *
 * A kernel may wait for what another launch will do, in another stream, thread or process. From outside it looks as any
 * long kernel does: so nothing passes before the container's work was in flight for PATIENCE without a gap, far longer
 * than a kernel takes, and then one launch. The next may pass when that one has ended and would be paid for by itself;
 * if it does not end, after twice as long as before, then four times, and so on. All of it is charged as ever, so it is
 * paid before anything passes in the ordinary way, and a gap in the work ends it: no program has more than its share by
 * it for longer than its kernels last, and over time none has more at all.
 * What must hold: each number is one word that all processes of the container share, and one atomic step decides who
 * passes. */
#ifndef ALIQUOT_PATIENCE_H
#define ALIQUOT_PATIENCE_H

#include <stdbool.h>

#include "meter.h"

/* Nothing was in flight before that time. */
void patience_anew(struct patience *patience, uint64_t now);

/* Whether a launch that has waited since then may pass unpaid now. */
bool patience_ends(const struct spending *on, uint64_t waits_since, uint64_t now);

/* The launch that passed at that time has ended. */
void patience_ended(const struct spending *on, uint64_t passed_at, uint64_t now);

/* So much time passed until work of one process ended. It did not wait for a launch that passed and has not ended yet; for
 * one that has, it may. */
void patience_took(struct patience *patience, uint64_t ns);

/* Whether it is this process's turn to launch what is long, or may be: its cost is only seen once it works, so of several
 * processes one begins at a time. The turn lasts until `until`, or while the process has it; `mine` is its last one. */
bool patience_turn(const struct spending *on, uint64_t *mine, uint64_t until, uint64_t now);
void patience_turn_over(const struct spending *on, uint64_t *mine);

#endif
