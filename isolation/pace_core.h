/* How one process may use a GPU: what is in flight, what is paid, and whether a launch may pass. Pure: whoever holds this
 * is told the time, and what the driver says is done (pace.c for a container; tests/isolation/virtual_gpu.c for a GPU
 * without time).
 *
 * Whether work is in flight is known from marks: events recorded after some launches, as many as take the container 6 ms
 * of the GPU, never more than two unfinished. So the queue on the GPU is 12 ms deep: what is held back is held back here,
 * and a slice that gave way uses 12 ms more. A process whose launches nobody has measured has one in flight. Where they
 * are long, the container's processes begin one after the other, for each is paid for only while it works.
 * What must hold: `now` never goes back, for with an older time than the last look's less than nothing would be paid,
 * which is 18,000 seconds in a word without a sign. */
#ifndef ALIQUOT_PACE_CORE_H
#define ALIQUOT_PACE_CORE_H

#include <stdbool.h>

#include "meter.h"

#define MARK_PLACES 16 /* more than two where streams end, for what they were given is marked then */

struct pacing {
    uint64_t behind[MARK_PLACES]; /* launches that each mark stands behind */
    unsigned first, pending;
    uint64_t unmarked, launches_a_mark; /* launches that no mark is behind; how many make one */
    uint64_t granted, granted_until;    /* launches that may pass until then, whatever is owed */
    uint64_t launching;                 /* threads that are about to launch */
    uint64_t asked_at, marked_at, looked_at, finished_at;
    uint64_t launch_ns;      /* what a launch takes, by the last marks; 0: not known yet */
    struct metered metered;  /* as of then */
    uint64_t began_at;       /* since when something is in flight */
    uint64_t in_flight_from; /* up to when that is paid; 0: nothing is in flight */
    uint64_t turn_until;     /* this process's last turn among those whose launches are long (patience.h) */
    uint64_t escaped_at;     /* when a launch passed unpaid that is not known to have ended; 0: none */
};

enum passing { STAYS, PASSES, ESCAPES };

void pacing_begin(struct pacing *pacing);

/* Whether a launch may pass that has waited since then. `crowded`: its stream could not be told from others. */
enum passing pacing_ask(struct pacing *pacing, const struct spending *on, bool crowded, uint64_t waits_since,
                        uint64_t now);

/* It is about to be given to the GPU. Whether nothing was in flight before. */
bool pacing_launch(struct pacing *pacing, uint64_t now);

/* It was given to the GPU, and noted by its stream or not. Whether a mark is due behind it. */
bool pacing_launched(struct pacing *pacing, bool noted);

/* Whether a mark may be made now, and how many of streams that end; where; and that it was made behind so many launches. */
bool pacing_may_mark(const struct pacing *pacing);
unsigned pacing_places(const struct pacing *pacing);
unsigned pacing_place(const struct pacing *pacing);
void pacing_marked(struct pacing *pacing, uint64_t launches, bool noted, uint64_t now);

/* A look: first how many of the oldest marks are reached; then that all moments up to now are paid. Whether what is behind
 * marks has to be asked for, too. */
void pacing_reached(struct pacing *pacing, const struct spending *on, unsigned marks, uint64_t now);
bool pacing_pay(struct pacing *pacing, const struct spending *on, bool crowded, uint64_t now);

/* So many launches behind the marks are done; whether they may be taken to be, where nobody can tell. */
void pacing_done(struct pacing *pacing, uint64_t launches, uint64_t now);
bool pacing_is_over(const struct pacing *pacing, uint64_t launches, uint64_t now);

/* All was asked for: whether that was all. */
void pacing_rest(struct pacing *pacing, const struct spending *on, uint64_t now);

/* The launch that was just given to the GPU passed unpaid, and it will be known when it ends; it has ended. */
void pacing_escapes(struct pacing *pacing);
void pacing_escaped(struct pacing *pacing, const struct spending *on, uint64_t now);

#endif
