/* What this container used of a GPU's time, and when that is paid for. Pure: no clock, no driver.
 *
 * While work of a process is in flight, the container pays `weight` of every moment that passes, at `rate` (limits.h).
 * `free_at` in the account is the instant at which all of it is paid. What is still owed when the rate changes takes as
 * much longer or shorter: a slice that had next to nothing is not to wait for what it owes at that rate when it has half
 * of the GPU. Each number is one word that is changed by one atomic step, so a process may be killed anywhere.
 * What must hold: all processes together are charged for no more moments than there were. The weight is a guess until
 * the agent has seen them at work: eight that began at once would else owe for eight GPUs, and stand still for it. */
#ifndef ALIQUOT_METER_H
#define ALIQUOT_METER_H

#include <stdbool.h>
#include <stdint.h>

#include "account.h"

/* One GPU of the container: what it may use, and what all of its processes used. */
struct spending {
    const struct gpu_limits *limits;
    struct meter *meter;
    struct moments *moments;
    struct patience *patience;
};

struct metered {
    uint64_t in_flight, busy;
};

/* What so long in flight took of the GPU. */
uint64_t meter_weighed(const struct spending *on, uint64_t ns);

/* What the container has of the GPU in so long as one of its processes has work in flight, going by how many of them
 * had since the last time that this was asked. */
uint64_t meter_work(const struct spending *on, uint64_t ns, struct metered *last);

/* Work of one process was in flight for so long, up to now; times are CLOCK_MONOTONIC in ns. */
void meter_pay(const struct spending *on, uint64_t ns, uint64_t now);

/* How long until what was used is paid for; 0: a launch need not wait. */
uint64_t meter_due(const struct spending *on, uint64_t now);

/* Whether the container may use all of the GPU for now. */
bool meter_is_whole(const struct spending *on, uint64_t now);

/* How long it takes to pay for so much of the GPU's time, at the rate in force. */
uint64_t meter_price(const struct spending *on, uint64_t ns, uint64_t now);

/* A launch is asked for. */
void meter_want(const struct spending *on, uint64_t now);

/* A launch was held back for so long. */
void meter_held(const struct spending *on, uint64_t ns);

#endif
