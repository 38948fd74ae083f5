/* What this container used of a GPU's time, and when that is paid for.
 *
 * While work of a process is in flight, the container pays `weight` of every moment that passes, at `rate` (limits.h).
 * `free_at` in the account is the instant at which all of it is paid. What is still owed when the rate changes takes as
 * much longer or shorter: a slice that had next to nothing is not to wait for what it owes at that rate when it has half
 * of the GPU. Each number is one word that is changed by one atomic step, so a process may be killed anywhere. */
#ifndef ALIQUOT_METER_H
#define ALIQUOT_METER_H

#include <stdint.h>

struct metered {
    uint64_t in_flight, busy;
};

/* What the container has of the GPU in so long as one of its processes has work in flight, going by how many of them
 * had since the last time that this was asked. */
uint64_t meter_work(int gpu, uint64_t ns, struct metered *last);

/* Work of this process was in flight for so long, up to now; times are CLOCK_MONOTONIC in ns. */
void meter_pay(int gpu, uint64_t ns, uint64_t now);

/* How long until what was used is paid for; 0: a launch need not wait. */
uint64_t meter_due(int gpu, uint64_t now);

/* A launch is asked for. */
void meter_want(int gpu, uint64_t now);

/* A launch was held back for so long. */
void meter_held(int gpu, uint64_t ns);

#endif
