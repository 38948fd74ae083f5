/* When the container's processes had work in flight: the last windows of time, and for how long in each, all together.
 *
 * The agent lays the windows of all containers side by side, and so sees who met whom (aliquot_agent/isolation/turns.py).
 * Windows are as long as a GPU's turn, and the same for everybody, by CLOCK_MONOTONIC. Nobody has to say that he begins
 * or ends, so nobody who is killed is counted for ever.
 * What must hold: a word has its window's number in its upper half and nanoseconds in its lower, so one atomic step takes a
 * place over from a window that is long past. */
#ifndef ALIQUOT_MOMENTS_H
#define ALIQUOT_MOMENTS_H

#include <stdint.h>

#include "account.h"

/* Work of one process was in flight from then until then. */
void moments_add(struct moments *moments, uint64_t from, uint64_t until);

#endif
